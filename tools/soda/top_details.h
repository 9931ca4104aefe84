/* SPDX-License-Identifier: BSD-3-Clause */
/* The details of one target: every row of its view, and its clients. For top_frame.c. */
#ifndef SODA_TOP_DETAILS_H
#define SODA_TOP_DETAILS_H

#include "top_canvas.h"
#include "top_target.h"

/* Draws from `row` on; returns the row behind it. The target's lock is held. */
int soda_top_details(struct soda_top_canvas *c, int row, const struct soda_top_target *t);
/* The same rows with what they mean. */
int soda_top_explain(struct soda_top_canvas *c, int row, const struct soda_top_target *t);

#endif
