/* SPDX-License-Identifier: BSD-3-Clause */
/* RFC 4648, section 4, with padding. */
#ifndef SODA_REGISTRY_BASE64_H
#define SODA_REGISTRY_BASE64_H

#include <stddef.h>

/* A string for the caller to free; NULL: no memory. */
char *soda_base64_encode(const void *data, size_t bytes);
/* What the text says, for the caller to free, ended by a 0 beyond *bytes_p; NULL: it is none. */
char *soda_base64_decode(const char *text, size_t *bytes_p);

#endif
