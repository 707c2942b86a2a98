// long carry_out(struct list *list), for aarch64. See steps.py for the layout and the meaning.
// It decides nothing: the list names each call, and which answers let it go on.
// The child of the clone shares this memory and this stack, and never touches the stack.

        .text
        mov     x9, x0
        ldr     x0, [x9, #8]            // flags of the clone; none: the calls are made right here
        cbz     x0, begin
        mov     x1, xzr
        mov     x2, xzr
        mov     x3, xzr
        mov     x4, xzr
        mov     x8, #220                // clone
        svc     #0
        cbz     x0, begin
        ret                             // the caller, once the child has become another program

begin:  add     x10, x9, #16

next:   str     x10, [x9]               // how far it came
        ldr     x8, [x10]
        ldp     x0, x1, [x10, #8]
        ldp     x2, x3, [x10, #24]
        ldr     x4, [x10, #40]
        svc     #0
        str     x0, [x10, #88]
        ldp     x11, x12, [x10, #56]    // where else the answer is wanted
        str     x0, [x11]
        str     x0, [x12]

        mov     x12, xzr                // 0 for success, else the errno, 63 for larger ones
        add     x11, x10, #96
        cmn     x0, #4095
        b.lo    weigh
        ldr     x11, [x10, #72]         // what follows a failure
        mov     x13, #63
        neg     x12, x0
        cmp     x12, x13
        csel    x12, x12, x13, lo
weigh:  ldr     x13, [x10, #48]
        mov     x10, x11
        lsr     x13, x13, x12
        tbnz    x13, #0, next

        ldr     x0, [x9, #8]
        cbnz    x0, leave
        ret

leave:  mov     x8, #94                 // exit_group
        mov     x0, #125
        svc     #0
        b       leave
