/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What jemalloc's object code calls (move-tsd) where it read an offset from the thread pointer that
 * was the same in all threads: an entry a register, 32 bytes each, to load the calling thread's own
 * (soda_heap_mine.data, its first word), then one a register to add it.  They change that register, and the flags as
 * the addition does, and nothing else.
 */
	.hidden	soda_heap_mine

	.macro	load reg
	.p2align 5
	.cfi_startproc
	movq	soda_heap_mine@gottpoff(%rip), %\reg
	movq	%fs:(%\reg), %\reg
	ret
	.cfi_endproc
	.endm

	.macro	add_to reg, other
	.p2align 5
	.cfi_startproc
	pushq	%\other
	.cfi_adjust_cfa_offset 8
	movq	soda_heap_mine@gottpoff(%rip), %\other
	addq	%fs:(%\other), %\reg
	popq	%\other
	.cfi_adjust_cfa_offset -8
	ret
	.cfi_endproc
	.endm

	.text
	.globl	soda_je_tsd_ways
	.hidden	soda_je_tsd_ways
	.type	soda_je_tsd_ways, @function
	.p2align 5
soda_je_tsd_ways:
	.irp	reg, rax, rcx, rdx, rbx, rsp, rbp, rsi, rdi, r8, r9, r10, r11, r12, r13, r14, r15
	load	\reg
	.endr
	add_to	rax, rcx
	.irp	reg, rcx, rdx, rbx, rsp, rbp, rsi, rdi, r8, r9, r10, r11, r12, r13, r14, r15
	add_to	\reg, rax
	.endr
	.size	soda_je_tsd_ways, . - soda_je_tsd_ways

	.section .note.GNU-stack, "", @progbits
