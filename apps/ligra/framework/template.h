/* SPDX-License-Identifier: BSD-3-Clause */
/* Names made of macros, for the templates edge_map.h and vertex_map.h. */
#ifndef LIGRA_TEMPLATE_H
#define LIGRA_TEMPLATE_H

#define TEMPLATE_PASTE(name, suffix) name##suffix
#define TEMPLATE_NAME(name, suffix) TEMPLATE_PASTE(name, suffix)

/* Words of a bitmap that a thread takes at a time; more where ahead.h says so. */
#define WORDS_AT_A_TIME 64

#endif
