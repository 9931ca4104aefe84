/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef LIGRA_MIS_H
#define LIGRA_MIS_H

/* What the result says of a vertex. */
enum { MIS_IN, MIS_OUT };

#endif
