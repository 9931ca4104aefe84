/* SPDX-License-Identifier: BSD-3-Clause */
#include "trust/sealed_file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "trust/identity.h"
#include "wire/field.h"

enum { PAGE_MAC = 16, PREFIX = 8 };

struct soda_sealed_open_key {
	uint8_t salt[SODA_SEALED_OPEN_SALT];
	struct soda_seal_key key;
};

/* The key file */

struct key_file {
	char *key;
};

static const struct soda_option key_file_options[] = {
	{ .name = "key", .type = SODA_OPT_STRING, .offset = offsetof(struct key_file, key) },
};

static const struct soda_conf key_file_conf = {
	.program = "seal", /* the section */
	.options = key_file_options,
	.options_n = sizeof(key_file_options) / sizeof(key_file_options[0]),
};

static int set_id(struct soda_sealed_key *key)
{
	static const char info[] = "soda seal file id";
	uint8_t id[SODA_KEY_BYTES];
	int ret = soda_hkdf(key->root, NULL, 0, info, sizeof(info) - 1, id);

	memcpy(key->id, id, sizeof(key->id));
	return ret;
}

int soda_sealed_key_read(const char *path, struct soda_sealed_key *key_p,
			 struct soda_conf_error *err)
{
	struct key_file file = { NULL };
	struct soda_sealed_key key;
	char by_fd[64];
	struct stat st;
	int ret = soda_crypto_ready(err), fd;

	if (ret)
		return ret;
	fd = soda_private_open(path, &st, err);
	if (fd < 0)
		return fd;
	/* what was looked at is what is read, whatever the name leads to by now */
	snprintf(by_fd, sizeof(by_fd), "/proc/self/fd/%d", fd);
	ret = soda_conf_file(&key_file_conf, by_fd, &file, err);
	if (!ret && (!file.key || soda_key_parse(file.key, key.root)))
		ret = soda_conf_fail(err, -EINVAL,
				     "%.150s: expected a section [seal] with 'key = ' and 64 "
				     "hexadecimal digits",
				     path);
	if (!ret && (ret = set_id(&key)))
		soda_conf_fail(err, ret, "%.150s: OpenSSL has failed", path);
	if (!ret)
		*key_p = key;
	soda_wipe(&key, sizeof(key));
	if (file.key)
		soda_wipe(file.key, strlen(file.key));
	soda_conf_free(&key_file_conf, &file);
	close(fd);
	return ret;
}

static int write_all(int fd, const char *text, size_t n)
{
	while (n) {
		ssize_t done = write(fd, text, n);

		if (done < 0 && errno == EINTR)
			continue;
		if (done < 0)
			return -errno;
		text += done;
		n -= (size_t)done;
	}
	return fsync(fd) ? -errno : 0;
}

int soda_sealed_key_make(const char *path, struct soda_conf_error *err)
{
	char text[128], hex[SODA_KEY_TEXT_BYTES];
	uint8_t key[SODA_KEY_BYTES];
	int ret = soda_random(key, sizeof(key)), fd;

	if (ret)
		return soda_conf_fail(err, ret, "no randomness: %s", strerror(-ret));
	fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
	if (fd < 0) {
		ret = -errno;
		return soda_conf_fail(err, ret, "%.150s: cannot make it: %s", path,
				      ret == -EEXIST ? "there is one, and files may need its key"
						     : strerror(-ret));
	}
	snprintf(text, sizeof(text), "[seal]\nkey = %s\n", soda_key_format(key, sizeof(key), hex));
	ret = write_all(fd, text, strlen(text));
	if (ret) {
		unlink(path);
		soda_conf_fail(err, ret, "%.150s: cannot write it: %s", path, strerror(-ret));
	}
	close(fd);
	soda_wipe(text, sizeof(text));
	soda_wipe(hex, sizeof(hex));
	soda_wipe(key, sizeof(key));
	return ret;
}

/* MACs */

static int mac_header(const struct soda_sealed_file *f, const uint8_t *page,
		      uint8_t mac[SODA_SEALED_MAC])
{
	uint8_t text[PREFIX + SODA_SEALED_HEADER_MACED] = { 'H' };

	memcpy(text + PREFIX, page, SODA_SEALED_HEADER_MACED);
	return soda_hmac(f->mac_key, sizeof(f->mac_key), text, sizeof(text), mac);
}

/* f->macs has room for the prefix before the first of them. */
static int mac_root(const struct soda_sealed_file *f, uint8_t root[SODA_SEALED_MAC])
{
	uint8_t *text = f->macs - PREFIX;

	memset(text, 0, PREFIX);
	text[0] = 'R';
	return soda_hmac(f->mac_key, sizeof(f->mac_key), text,
			 PREFIX + f->layout.table_pages * PAGE_MAC, root);
}

int soda_sealed_file_changed(struct soda_sealed_file *f, uint64_t page)
{
	uint8_t text[PREFIX + SODA_SEALED_PAGE], mac[SODA_SEALED_MAC];
	int ret;

	soda_wire_put(text + 1, page, PREFIX - 1);
	text[0] = 'P';
	memcpy(text + PREFIX, f->table + page * SODA_SEALED_PAGE, SODA_SEALED_PAGE);
	ret = soda_hmac(f->mac_key, sizeof(f->mac_key), text, sizeof(text), mac);
	if (!ret)
		memcpy(f->macs + page * PAGE_MAC, mac, PAGE_MAC);
	return ret;
}

int soda_sealed_file_commit(struct soda_sealed_file *f, uint8_t page[SODA_SEALED_PAGE])
{
	struct soda_sealed_header h = f->header;
	int ret;

	h.commits++;
	ret = mac_root(f, h.root);
	if (ret)
		return ret;
	soda_sealed_put_header(page, &h);
	ret = mac_header(f, page, h.mac);
	if (ret)
		return ret;
	soda_sealed_put_header(page, &h);
	f->header = h;
	return 0;
}

/* Files */

static uint64_t macs_bytes(const struct soda_sealed_file *f)
{
	return PREFIX + f->layout.table_pages * PAGE_MAC;
}

/* f->header is set. */
static int make_room(const struct soda_sealed_key *key, struct soda_sealed_file *f)
{
	static const char info[] = "soda seal file mac";
	int ret = soda_sealed_layout(f->header.bytes, &f->layout);

	if (!ret)
		ret = soda_hkdf(key->root, f->header.salt, sizeof(f->header.salt), info,
				sizeof(info) - 1, f->mac_key);
	if (ret)
		return ret;
	f->table = soda_secret_map(f->layout.table_pages * SODA_SEALED_PAGE);
	f->macs = soda_secret_map(macs_bytes(f));
	if (f->macs)
		f->macs += PREFIX;
	if (f->table && f->macs)
		return 0;
	soda_sealed_file_end(f);
	return -ENOMEM;
}

int soda_sealed_file_make(const struct soda_sealed_key *key, uint64_t bytes,
			  struct soda_sealed_file *f_p)
{
	struct soda_sealed_file f = { .header = { .bytes = bytes, .cipher = soda_seal_fastest() } };
	int ret = soda_random(f.header.salt, sizeof(f.header.salt));

	memcpy(f.header.key_id, key->id, sizeof(key->id));
	if (!ret)
		ret = make_room(key, &f);
	if (ret)
		return ret;
	for (uint64_t i = 0; i < f.layout.table_pages && !ret; i++)
		ret = soda_sealed_file_changed(&f, i);
	if (ret)
		soda_sealed_file_end(&f);
	else
		*f_p = f;
	return ret;
}

int soda_sealed_file_begin(const struct soda_sealed_key *key, const uint8_t *page,
			   struct soda_sealed_file *f_p, struct soda_conf_error *err)
{
	struct soda_sealed_file f = { 0 };
	char has[2 * SODA_SEALED_KEY_ID + 1], given[2 * SODA_SEALED_KEY_ID + 1];
	uint8_t mac[SODA_SEALED_MAC];
	int ret = soda_sealed_get_header(page, &f.header);

	if (ret)
		return soda_conf_fail(err, ret,
				      soda_sealed_kind(page) == SODA_SEALED_FILE
					      ? "its header is damaged, or of a later SODA"
					      : "it is not sealed");
	if (!soda_mac_equal(f.header.key_id, key->id, sizeof(key->id)))
		return soda_conf_fail(err, -EACCES,
				      "it is sealed with the key %s, and the key given is %s",
				      soda_key_format(f.header.key_id, sizeof(key->id), has),
				      soda_key_format(key->id, sizeof(key->id), given));
	if (!soda_seal_has(f.header.cipher))
		return soda_conf_fail(err, -ENOTSUP,
				      "it is sealed with a cipher that this OpenSSL has not");
	ret = make_room(key, &f);
	if (!ret)
		ret = mac_header(&f, page, mac);
	if (!ret && !soda_mac_equal(mac, f.header.mac, sizeof(mac)))
		ret = soda_conf_fail(err, -EBADMSG, "its header was changed");
	if (ret)
		soda_sealed_file_end(&f);
	else
		*f_p = f;
	return ret;
}

static int by_salt(const void *a, const void *b)
{
	return memcmp(((const struct soda_sealed_open_key *)a)->salt,
		      ((const struct soda_sealed_open_key *)b)->salt, SODA_SEALED_OPEN_SALT);
}

static int derive(const struct soda_sealed_key *key, const struct soda_sealed_file *f,
		  const uint8_t *salt, struct soda_seal_key *out)
{
	uint8_t both[SODA_SEALED_SALT + SODA_SEALED_OPEN_SALT];
	char info[40];
	int n = snprintf(info, sizeof(info), "soda seal file blocks %u", f->header.cipher);

	memcpy(both, f->header.salt, SODA_SEALED_SALT);
	memcpy(both + SODA_SEALED_SALT, salt, SODA_SEALED_OPEN_SALT);
	out->serial = soda_seal_serial();
	out->cipher = (enum soda_seal_cipher)f->header.cipher;
	return soda_hkdf(key->root, both, sizeof(both), info, (size_t)n, out->key);
}

static void free_keys(struct soda_sealed_file *f)
{
	if (!f->keys)
		return;
	soda_wipe(f->keys, f->keys_n * sizeof(*f->keys));
	munmap(f->keys, f->keys_room * sizeof(*f->keys));
}

/* One more place for a key, in memory that a child of fork(2) does not have. */
static int grow(struct soda_sealed_file *f)
{
	size_t room = f->keys_room ? 2 * f->keys_room : SODA_SEALED_PAGE / sizeof(*f->keys);
	struct soda_sealed_open_key *keys;

	if (f->keys_n < f->keys_room)
		return 0;
	keys = soda_secret_new(room * sizeof(*keys));
	if (!keys)
		return -ENOMEM;
	if (f->keys_n)
		memcpy(keys, f->keys, f->keys_n * sizeof(*keys));
	free_keys(f);
	f->keys = keys;
	f->keys_room = room;
	return 0;
}

/* Blocks one after the other mostly have one salt; what is there twice is removed then. */
static int collect_salts(struct soda_sealed_file *f)
{
	const uint8_t *last = NULL;
	size_t n = 0;

	for (uint64_t i = 0; i < f->layout.blocks; i++) {
		struct soda_sealed_entry e =
			soda_sealed_get_entry(f->table + i * SODA_SEALED_ENTRY);

		if (!e.version || (last && !memcmp(last, e.salt, SODA_SEALED_OPEN_SALT)))
			continue;
		last = e.salt;
		if (grow(f))
			return -ENOMEM;
		f->keys[f->keys_n] = (struct soda_sealed_open_key){ .key = { 0 } };
		memcpy(f->keys[f->keys_n++].salt, e.salt, SODA_SEALED_OPEN_SALT);
	}
	if (f->keys_n)
		qsort(f->keys, f->keys_n, sizeof(*f->keys), by_salt);
	for (size_t i = 0; i < f->keys_n; i++)
		if (!n || by_salt(&f->keys[n - 1], &f->keys[i]))
			f->keys[n++] = f->keys[i];
	f->keys_n = n;
	return 0;
}

int soda_sealed_file_check(const struct soda_sealed_key *key, struct soda_sealed_file *f,
			   struct soda_conf_error *err)
{
	uint8_t root[SODA_SEALED_MAC];
	int ret = 0;

	for (uint64_t i = 0; i < f->layout.table_pages && !ret; i++)
		ret = soda_sealed_file_changed(f, i);
	if (!ret)
		ret = mac_root(f, root);
	if (!ret && !soda_mac_equal(root, f->header.root, sizeof(root)))
		return soda_conf_fail(err, -EBADMSG,
				      "its table of tags was changed, or is of another time");
	if (!ret)
		ret = collect_salts(f);
	for (size_t i = 0; i < f->keys_n && !ret; i++)
		ret = derive(key, f, f->keys[i].salt, &f->keys[i].key);
	return ret;
}

void soda_sealed_file_end(struct soda_sealed_file *f)
{
	free_keys(f);
	if (f->macs)
		munmap(f->macs - PREFIX, macs_bytes(f));
	if (f->table)
		munmap(f->table, f->layout.table_pages * SODA_SEALED_PAGE);
	soda_wipe(f, sizeof(*f));
	memset(f, 0, sizeof(*f));
}

int soda_sealed_file_new_key(const struct soda_sealed_key *key, const struct soda_sealed_file *f,
			     uint8_t salt[SODA_SEALED_OPEN_SALT], struct soda_seal_key *key_p)
{
	int ret = soda_random(salt, SODA_SEALED_OPEN_SALT);

	return ret ? ret : derive(key, f, salt, key_p);
}

const struct soda_seal_key *soda_sealed_file_key(const struct soda_sealed_file *f,
						 const uint8_t *salt)
{
	size_t low = 0, high = f->keys_n;

	while (low < high) {
		size_t at = low + (high - low) / 2;
		int order = memcmp(salt, f->keys[at].salt, SODA_SEALED_OPEN_SALT);

		if (!order)
			return &f->keys[at].key;
		if (order < 0)
			high = at;
		else
			low = at + 1;
	}
	return NULL;
}
