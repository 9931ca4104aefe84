/* SPDX-License-Identifier: BSD-3-Clause */
/* Numbers as `soda top` and `soda stat` print them: at most 9 characters, "-" for NAN. */
#ifndef SODA_TOP_FORMAT_H
#define SODA_TOP_FORMAT_H

#include "top_views.h"

enum { SODA_TOP_TEXT = 24 };

/* 12345 -> "12.3k": thousands. */
void soda_top_format_count(double value, char out[SODA_TOP_TEXT]);
/* 3 << 20 -> "3.0 MiB". */
void soda_top_format_bytes(double value, char out[SODA_TOP_TEXT]);
/* 12345 ns -> "12.3 us". */
void soda_top_format_time(double ns, char out[SODA_TOP_TEXT]);
/* By the kind of row, with "/s" where it is a rate. */
void soda_top_format(enum soda_top_kind kind, double value, char out[SODA_TOP_TEXT]);

#endif
