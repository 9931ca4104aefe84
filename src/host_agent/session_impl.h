/* SPDX-License-Identifier: BSD-3-Clause */
/* What session.c and session_calls.c share. */
#ifndef SODA_HOST_SESSION_IMPL_H
#define SODA_HOST_SESSION_IMPL_H

#include "host_agent/session.h"

/* The control connection, locked (SESSION) until it is released; NULL while DOWN. */
struct soda_conn *soda_session_control_acquire(void);
void soda_session_control_release(void);

#endif
