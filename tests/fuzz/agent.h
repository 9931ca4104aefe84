/* SPDX-License-Identifier: BSD-3-Clause */
/* The DPU agent, for calls.c and fuzz_hello.c, in this process; a fixture has its server. */
#ifndef SODA_TESTS_FUZZ_AGENT_H
#define SODA_TESTS_FUZZ_AGENT_H

#include <stdbool.h>

/* Once. early: it acknowledges WRITEs before the server has. */
void fuzz_agent_start(const char *server, bool early);
/* When no connection is left: wait until the clients have gone. */
void fuzz_agent_await_idle(void);

#endif
