/* SPDX-License-Identifier: BSD-3-Clause */
/* The verbs transport: verbs.c, or stub.c in a build without rdma-core. */
#ifndef SODA_VERBS_H
#define SODA_VERBS_H

#include "transport/api/transport_impl.h"

extern const struct soda_transport soda_tp_verbs;

#endif
