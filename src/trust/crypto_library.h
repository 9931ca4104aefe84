/* SPDX-License-Identifier: BSD-3-Clause */
/* OpenSSL's libcrypto, as crypto.c has loaded it, for the other files of this folder. */
#ifndef SODA_TRUST_CRYPTO_LIBRARY_H
#define SODA_TRUST_CRYPTO_LIBRARY_H

/* A function of it, after soda_crypto_ready(); NULL: it has none of that name. */
void *soda_crypto_symbol(const char *name);

#endif
