/* SPDX-License-Identifier: BSD-3-Clause */
/* Variables that people have misspelt: an unknown flag is an error, an unknown variable may be
 * another program's. */
#ifndef SODA_BASE_CONF_MISSPELT_H
#define SODA_BASE_CONF_MISSPELT_H

#include "base/conf/conf.h"

/*
 * A variable of the environment that is none of the options' and nearly one: SODA_BUFER.  Returns
 * the option's, and of the other *given_p and its *length_p; NULL: there is none.
 */
const char *soda_conf_misspelt(const struct soda_conf *conf, const char **given_p, int *length_p);

#endif
