"""The part of the guard that guarded code must not reach: state, originals and judgement.

At installation these modules are loaded once more, privately, and are reached only through
opaque doors (see `vault`). They define no classes, because every class can be found from
`object`; what crosses a door is text, numbers, tuples and plain exceptions. They bind the C
functions that they call when they load, because names in other modules can be changed later.
"""
