/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Finds the name of a function by an address in it.  dladdr(3) knows the symbols that a file
 * exports; others are in the file's symbol table, which is not loaded, unless it was stripped.
 */
#include "run/core/run.h"

#include <dlfcn.h>
#include <elf.h>
#include <execinfo.h>
#include <fcntl.h>
#include <link.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

struct file {
	const char *at;
	size_t bytes;
};

/* A part of the file; NULL: it does not lie inside. */
static const void *inside(const struct file *f, uint64_t offset, uint64_t bytes)
{
	return offset <= f->bytes && bytes <= f->bytes - offset ? f->at + offset : NULL;
}

/* The function of the symbol table that holds `value`. */
static bool look_up(const struct file *f, const Elf64_Shdr *table, const Elf64_Shdr *names,
		    uint64_t value, char *name, size_t bytes, uint64_t *from_p)
{
	const Elf64_Sym *symbols = inside(f, table->sh_offset, table->sh_size);
	const char *text = inside(f, names->sh_offset, names->sh_size);

	if (!symbols || !text || !names->sh_size || text[names->sh_size - 1])
		return false;
	for (size_t i = 0; i < table->sh_size / sizeof(*symbols); i++) {
		const Elf64_Sym *s = &symbols[i];

		if (ELF64_ST_TYPE(s->st_info) != STT_FUNC || value < s->st_value ||
		    value - s->st_value >= s->st_size || s->st_name >= names->sh_size)
			continue;
		snprintf(name, bytes, "%s", text + s->st_name);
		*from_p = s->st_value;
		return true;
	}
	return false;
}

static bool search(const struct file *f, uint64_t value, char *name, size_t bytes, uint64_t *from_p)
{
	const Elf64_Ehdr *head = inside(f, 0, sizeof(*head));
	const Elf64_Shdr *sections;

	if (!head || memcmp(head->e_ident, ELFMAG, SELFMAG) ||
	    head->e_ident[EI_CLASS] != ELFCLASS64 || head->e_shentsize != sizeof(*sections))
		return false;
	sections = inside(f, head->e_shoff, (uint64_t)head->e_shnum * sizeof(*sections));
	for (int i = 0; sections && i < head->e_shnum; i++)
		if (sections[i].sh_type == SHT_SYMTAB && sections[i].sh_link < head->e_shnum)
			return look_up(f, &sections[i], &sections[sections[i].sh_link], value, name,
				       bytes, from_p);
	return false;
}

static bool in_file(const struct link_map *map, uint64_t value, char *name, size_t bytes,
		    uint64_t *from_p)
{
	int fd = open(map->l_name[0] ? map->l_name : "/proc/self/exe", O_RDONLY | O_CLOEXEC);
	struct file f = { NULL, 0 };
	bool found = false;
	struct stat st;

	if (fd < 0)
		return false;
	if (!fstat(fd, &st) && st.st_size > 0) {
		f.bytes = (size_t)st.st_size;
		f.at = (const char *)syscall(SYS_mmap, NULL, f.bytes, PROT_READ, MAP_PRIVATE, fd,
					     0);
		if (f.at != MAP_FAILED) {
			found = search(&f, value, name, bytes, from_p);
			syscall(SYS_munmap, f.at, f.bytes);
		}
	}
	close(fd);
	return found;
}

/* The file of an address; NULL: none. From glibc 2.35 on this takes no lock of the loader's. */
static const char *file_of(const void *address)
{
#ifdef DLFO_STRUCT_HAS_EH_DBASE
	struct dl_find_object found;

	return _dl_find_object((void *)(uintptr_t)address, &found) ? NULL
								   : found.dlfo_link_map->l_name;
#else
	Dl_info found;

	return dladdr(address, &found) ? found.dli_fname : NULL;
#endif
}

/* Whether a language's own library, C++'s or Fortran's, has the address. */
static bool in_runtime(const void *address)
{
	static const char *const names[] = { "libstdc++.so", "libc++.so", "libc++abi.so",
					     "libgfortran.so" };
	const char *path = file_of(address), *slash = path ? strrchr(path, '/') : NULL;

	for (size_t i = 0; path && i < sizeof(names) / sizeof(*names); i++)
		if (!strncmp(slash ? slash + 1 : path, names[i], strlen(names[i])))
			return true;
	return false;
}

const void *run_beyond_runtime(const void *caller)
{
	enum { FRAMES = 16 };
	void *frames[FRAMES];
	int n, i = 0;

	if (!in_runtime(caller))
		return caller;
	n = backtrace(frames, FRAMES);
	while (i < n && frames[i] != caller)
		i++;
	for (; i < n; i++)
		if (!in_runtime(frames[i]))
			return frames[i];
	return caller;
}

/* The name as it stands in the source, in place, where there is somebody who knows it. */
static void demangle(char *name, size_t bytes)
{
	char *(*by)(const char *, char *, size_t *, int *) = NULL;
	char *plain;
	int bad;

	if (strncmp(name, "_Z", 2) != 0)
		return;
	*(void **)&by = dlsym(RTLD_DEFAULT, "__cxa_demangle");
	plain = by ? by(name, NULL, NULL, &bad) : NULL;
	if (plain) /* not freed: it may be another allocator's, and the process ends */
		snprintf(name, bytes, "%s", plain);
}

void run_symbol(const void *address, char *text, size_t bytes)
{
	/* inside of the call instruction, which may be the last one of its function */
	const char *at = (const char *)address - 1;
	struct link_map *map = NULL;
	const char *file, *slash;
	char name[200];
	uint64_t from;
	Dl_info info;

	if (!dladdr1(at, &info, (void **)&map, RTLD_DL_LINKMAP) || !map) {
		snprintf(text, bytes, "%p", address);
		return;
	}
	slash = strrchr(info.dli_fname, '/');
	file = slash ? slash + 1 : info.dli_fname;
	if (in_file(map, (uint64_t)(uintptr_t)at - map->l_addr, name, sizeof(name), &from)) {
		from += map->l_addr;
	} else if (info.dli_sname) {
		snprintf(name, sizeof(name), "%s", info.dli_sname);
		from = (uintptr_t)info.dli_saddr;
	} else {
		snprintf(text, bytes, "%s+0x%zx", file,
			 (size_t)((const char *)address - (char *)info.dli_fbase));
		return;
	}
	demangle(name, sizeof(name));
	snprintf(text, bytes, "%s+0x%zx (%s)", name, (size_t)((uintptr_t)address - from), file);
}
