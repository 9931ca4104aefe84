/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef SODA_TESTS_LIB_MUST_H
#define SODA_TESTS_LIB_MUST_H

#include <stdio.h>
#include <stdlib.h>

/* Holds, or the program ends (abort) with a line that says where it does not. */
#define MUST(condition)                                                                            \
	do {                                                                                       \
		if (!(condition)) {                                                                \
			fprintf(stderr, "%s:%d: must hold: %s\n", __FILE__, __LINE__, #condition); \
			abort();                                                                   \
		}                                                                                  \
	} while (0)

#endif
