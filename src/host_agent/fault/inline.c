/* SPDX-License-Identifier: BSD-3-Clause */
#include "host_agent/fault/fault.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <string.h>
#include <ucontext.h>

#include "host_agent/core/agent.h"
#include "host_agent/core/helper.h"
#include "host_agent/pages/signals.h"

/* Whether the faulting instruction was a store; false where the machine does not say. */
static bool was_store(const void *context)
{
#if defined(__x86_64__)
	const ucontext_t *uc = context;

	return uc->uc_mcontext.gregs[REG_ERR] & 2;
#elif defined(__aarch64__)
	/*
	 * The exception syndrome is in a record behind the registers; its bit 6 is set for a store.
	 */
	const ucontext_t *uc = context;
	const struct _aarch64_ctx *rec = (const void *)uc->uc_mcontext.__reserved;

	while (rec->magic && rec->size) {
		if (rec->magic == 0x45535201)
			return ((const struct esr_context *)rec)->esr >> 6 & 1;
		rec = (const void *)((const char *)rec + rec->size);
	}
	return false;
#else
	return false;
#endif
}

static void on_sigbus(int sig, siginfo_t *info, void *context)
{
	int saved = errno;
	struct soda_thread *t;
	struct soda_fault f;
	bool served = false;

	/* si_code > 0: from the kernel, not from kill(2) */
	if (info->si_code > 0 && soda_agent_owns(info->si_addr) &&
	    atomic_load(&soda_agent.life) == SODA_LIFE_RUNNING &&
	    soda_fault_describe(&f, info->si_addr, was_store(context))) {
		f.mask = &((const ucontext_t *)context)->uc_sigmask;
		t = soda_thread_self();
		served = t && soda_fault_serve(t, &f) == 0;
	}
	errno = saved;
	if (!served)
		soda_signals_chain(sig, info, context);
}

int soda_inline_start(void)
{
	struct sigaction sa = { .sa_sigaction = on_sigbus, .sa_flags = SA_SIGINFO | SA_ONSTACK };

	sigset_t bus;

	sigfillset(&sa.sa_mask);
	soda_signals_block_cancel(&sa.sa_mask);
	sigdelset(&sa.sa_mask, SIGSEGV); /* closed_pages.c: raised on chunks that are PROT_NONE */
	/* who started the program may have left it blocked, and its first touch would end it */
	sigemptyset(&bus);
	sigaddset(&bus, SIGBUS);
	sigprocmask(SIG_UNBLOCK, &bus, NULL);
	return soda_signals_take(SIGBUS, &sa);
}

void soda_inline_stop(void)
{
	soda_signals_give_back(SIGBUS);
}
