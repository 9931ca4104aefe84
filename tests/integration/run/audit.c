/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A library for LD_AUDIT, as profilers and package managers load: with one the dynamic linker has
 * little room for what libraries keep for each thread.
 */
__attribute__((visibility("default"))) unsigned la_version(unsigned version);

unsigned la_version(unsigned version)
{
	return version;
}
