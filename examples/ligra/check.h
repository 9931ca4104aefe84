/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef LIGRA_CHECK_H
#define LIGRA_CHECK_H

#include "result.h"

/*
 * Compare a result with the serial reference of its application and print a
 * line when it is right.  Needs the graph's VERIFY_PARTS and local memory for
 * the reference.  0; -EBADMSG with what is wrong; -ENOMEM.
 */
int check_result(const struct graph *g, const struct result *r, struct error *err);

#endif
