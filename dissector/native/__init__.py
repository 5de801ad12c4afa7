"""Compiled kernels without the compiler: how arguments are passed, code kept, loaded and made."""
