# long carry_out(struct list *list), for x86_64. See steps.py for the layout and the meaning.
# It decides nothing: the list names each call, and which answers let it go on.
# The child of the clone shares this memory and this stack, and never touches the stack.

        .text
        mov     %rdi, %r9
        mov     8(%rdi), %rdi           # flags of the clone; none: the calls are made right here
        test    %rdi, %rdi
        jz      here
        xor     %esi, %esi
        xor     %edx, %edx
        xor     %r10d, %r10d
        xor     %r8d, %r8d
        mov     $56, %eax               # clone
        syscall
        test    %rax, %rax
        jz      begin
        ret                             # the caller, once the child has become another program

here:   push    %rbx
        push    %r12
begin:  mov     %r9, %r12
        lea     16(%r9), %rbx

next:   mov     %rbx, (%r12)            # how far it came
        mov     (%rbx), %rax
        mov     8(%rbx), %rdi
        mov     16(%rbx), %rsi
        mov     24(%rbx), %rdx
        mov     32(%rbx), %r10
        mov     40(%rbx), %r8
        syscall
        mov     %rax, 88(%rbx)
        mov     56(%rbx), %rdx          # where else the answer is wanted
        mov     %rax, (%rdx)
        mov     64(%rbx), %rdx
        mov     %rax, (%rdx)

        xor     %ecx, %ecx              # 0 for success, else the errno, 63 for larger ones
        lea     96(%rbx), %rdx
        cmp     $-4095, %rax
        jb      weigh
        mov     72(%rbx), %rdx          # what follows a failure
        neg     %rax
        mov     $63, %ecx
        cmp     %rcx, %rax
        cmovb   %rax, %rcx
weigh:  mov     48(%rbx), %rax
        bt      %rcx, %rax
        mov     %rdx, %rbx
        jc      next

        cmpq    $0, 8(%r12)
        jne     leave
        pop     %r12
        pop     %rbx
        xor     %eax, %eax
        ret

leave:  mov     $231, %eax              # exit_group
        mov     $125, %edi
        syscall
        jmp     leave
