/* SPDX-License-Identifier: BSD-3-Clause */
/* Cases of soda.hpp, one a process: everything CASE.  All must hold: else a line, and status 1. */
#include <soda.hpp>
#include <soda_convey.h>
#include <soda_move.h>
#include <soda_msg.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <list>
#include <map>
#include <memory>
#include <numeric>
#include <set>
#include <string>
#include <unordered_map>
#include <vector>

#define MUST(condition)                                                                            \
	do {                                                                                       \
		if (!(condition)) {                                                                \
			std::fprintf(stderr, "%s:%d: must hold: %s\n", __FILE__, __LINE__,         \
				     #condition);                                                  \
			std::exit(1);                                                              \
		}                                                                                  \
	} while (0)

namespace
{

constexpr std::size_t buffer = 1 << 20; /* three times as much is used */

/* The code of what f throws; 0: nothing. */
template <class F> std::error_code thrown(F &&f)
{
	try {
		f();
	} catch (const std::system_error &e) {
		MUST(std::strlen(e.what()) > std::strlen(e.code().message().c_str()) + 2);
		return e.code();
	}
	return {};
}

/* At most the buffer was resident, and that was not enough. */
void check_paged()
{
	const soda_stats s = soda::stats();

	MUST(s.buffer_bytes <= buffer);
	MUST(s.resident_peak_bytes <= s.buffer_bytes);
	MUST(s.fam_bytes >= 3 * buffer);
	MUST(s.evicted_dirty > 0 && s.bytes_fetched > 0);
}

struct random {
	std::uint64_t state = 88172645463325252u;
	std::uint64_t operator()()
	{
		state ^= state << 13;
		state ^= state >> 7;
		return state ^= state << 17;
	}
};

template <class V> std::uint64_t hash(const V &v)
{
	std::uint64_t h = 1469598103934665603u;

	for (std::uint64_t x : v)
		h = (h ^ x) * 1099511628211u;
	return h;
}

/* Growth by push_back, a sort, an insertion in the middle, a copy of a part. */
template <class V> std::uint64_t use_vector(V v)
{
	const std::size_t n = 3 * buffer / sizeof(std::uint64_t);
	random next;

	for (std::size_t i = 0; i < n; i++)
		v.push_back(next() >> 8);
	std::sort(v.begin(), v.end());
	v.insert(v.begin() + static_cast<std::ptrdiff_t>(n / 2), 5, 42);
	V half(v.begin(), v.begin() + static_cast<std::ptrdiff_t>(n / 2), v.get_allocator());
	v.swap(half);
	v.shrink_to_fit();
	return hash(v) ^ hash(half);
}

/* Blocks of many sizes; K and L: a map and an ordered one from numbers to strings. */
template <class K, class L> std::uint64_t use_maps(K hashed, L ordered)
{
	const std::uint64_t n = 10000;
	std::uint64_t sum = 0;
	random next;

	for (std::uint64_t i = 0; i < n; i++) {
		hashed[i].assign(50 + next() % 200, static_cast<char>('a' + i % 26));
		ordered[i * 7 % n].assign(next() % 100, 'x');
	}
	for (std::uint64_t i = 0; i < n; i += 3)
		hashed.erase(i);
	for (std::uint64_t i = 0; i < 1000; i++) {
		const auto found = hashed.find(next() % n);

		if (found != hashed.end())
			sum = sum * 31 + found->second.size() +
			      static_cast<unsigned char>(found->second[0]);
	}
	for (const auto &[key, value] : ordered)
		sum = sum * 17 + key + value.size();
	return sum + hashed.size();
}

void case_vector()
{
	using fam = std::vector<std::uint64_t, soda::allocator<std::uint64_t>>;

	MUST(use_vector(fam()) == use_vector(std::vector<std::uint64_t>()));
	fam held(6 * buffer / sizeof(std::uint64_t), 7); /* an object */
	MUST(std::accumulate(held.begin(), held.end(), std::uint64_t{ 0 }) == 7 * held.size());
	check_paged();
}

void case_nodes()
{
	using string = std::basic_string<char, std::char_traits<char>, soda::allocator<char>>;
	using pair = std::pair<const std::uint64_t, string>;
	using hashed = std::unordered_map<std::uint64_t, string, std::hash<std::uint64_t>,
					  std::equal_to<std::uint64_t>, soda::allocator<pair>>;
	using ordered =
		std::map<std::uint64_t, string, std::less<std::uint64_t>, soda::allocator<pair>>;

	MUST(use_maps(hashed(), ordered()) ==
	     use_maps(std::unordered_map<std::uint64_t, std::string>(),
		      std::map<std::uint64_t, std::string>()));
	std::deque<int, soda::allocator<int>> d(100000, 3);
	std::list<int, soda::allocator<int>> l(d.begin(), d.end());
	std::set<int, std::less<int>, soda::allocator<int>> s(l.begin(), l.end());
	l.splice(l.end(), std::list<int, soda::allocator<int>>(5, 4));
	MUST(d.size() == 100000 && l.size() == 100005 && s.size() == 1);
	const auto shared = std::allocate_shared<long>(soda::allocator<long>(), 17);
	MUST(*shared == 17);
	check_paged();
}

void case_pmr()
{
	auto *fam = soda::resource();
	auto *local = std::pmr::new_delete_resource();
	const auto maps = [](std::pmr::memory_resource *r) {
		return use_maps(std::pmr::unordered_map<std::uint64_t, std::pmr::string>(r),
				std::pmr::map<std::uint64_t, std::pmr::string>(r));
	};
	const auto vector = [](std::pmr::memory_resource *r) {
		return use_vector(std::pmr::vector<std::uint64_t>(r));
	};

	MUST(maps(fam) == maps(local));
	MUST(vector(fam) == vector(local));
	{
		std::pmr::unsynchronized_pool_resource pool(fam);
		std::pmr::monotonic_buffer_resource all(&pool);
		MUST(maps(&pool) == maps(local));
		MUST(vector(&all) == vector(local));
		check_paged();
	}
	const soda::memory_resource same, other(SODA_NO_REDUNDANCY);
	MUST(fam->is_equal(same) && same != other && *fam != *local && other.flags() != 0);
	void *p = fam->allocate(100, 8192);
	MUST(reinterpret_cast<std::uintptr_t>(p) % 8192 == 0);
	fam->deallocate(p, 100, 8192);
	p = fam->allocate(0);
	fam->deallocate(p, 0);
}

struct alignas(256) wide {
	char text[256];
};

void case_sizes()
{
	soda::allocator<wide> a;
	soda::allocator<char> b(a);
	soda::allocator<char, SODA_NO_REDUNDANCY> objects;
	wide *w = a.allocate(3);
	std::uint64_t before;
	char *p;

	MUST(reinterpret_cast<std::uintptr_t>(w) % 256 == 0);
	a.deallocate(w, 3);
	MUST(a == b && !(a != b));
	before = soda::stats().fam_bytes;
	p = b.allocate(soda::object_bytes);
	MUST(soda::stats().fam_bytes == before + soda::object_bytes);
	MUST(soda_set_name(p, "an object") == 0);
	b.deallocate(p, soda::object_bytes);
	p = b.allocate(soda::object_bytes - 1);
	MUST(soda_set_name(p, "a block") == -EINVAL);
	b.deallocate(p, soda::object_bytes - 1);
	p = objects.allocate(1);
	MUST(soda_set_name(p, "an object") == 0);
	objects.deallocate(p, 1);
	MUST(!thrown([] {
		std::vector<char, soda::allocator<char, SODA_SEALED>> secret;
		try {
			secret.resize(10);
			MUST(soda_is_sealed(secret.data(), 1) == 1);
		} catch (const std::system_error &e) {
			MUST(e.code() == std::errc::not_supported); /* without OpenSSL */
		}
	}));
}

void case_array()
{
	const std::size_t n = 3 * buffer / sizeof(double);
	soda::array<double> a(n), none;
	double sum = 0;

	static_assert(!std::is_copy_constructible_v<soda::array<double>>);
	static_assert(!std::is_copy_assignable_v<soda::array<double>>);
	static_assert(std::is_nothrow_move_constructible_v<soda::array<double>>);
	static_assert(!std::is_copy_constructible_v<soda::hold>);
	MUST(!none && none.empty() && a && a.size() == n && a.size_bytes() == 3 * buffer);
	MUST(std::all_of(a.begin(), a.end(), [](double x) { return x == 0; }));
	std::iota(a.begin(), a.end(), 1.0);
	a.set_name("numbers");
	soda::advise(a, SODA_SEQUENTIAL);
	soda::prefetch(soda::span<double>(a).first(1000));
	soda::sync(a);
	soda::sync();
	none = std::move(a);
	MUST(!a && a.data() == nullptr && none.size() == n);
	for (double x : none)
		sum += x;
	MUST(sum == static_cast<double>(n) * static_cast<double>(n + 1) / 2);
	{
		soda::hold first(soda::span<double>(none).subspan(5000, 100));
		soda::hold second(std::move(first));
		const std::uint64_t before = soda::stats().faults;

		MUST(none[5050] == 5051 && soda::stats().faults == before);
		first = std::move(second);
	}
	soda::advise(soda::span<double>(none).last(n / 2), SODA_DISCARD);
	MUST(none[n - 1] == 0 && none[0] == 1);
	std::vector<int> local(100);
	MUST(thrown([&] { soda::advise(local, SODA_COLD); }) == std::errc::invalid_argument);
	MUST(thrown([&] { soda::prefetch(local); }) == std::errc::invalid_argument);
	MUST(thrown([&] { soda::sync(local); }) == std::errc::invalid_argument);
	MUST(thrown([&] { soda::hold h(local); }) == std::errc::invalid_argument);
	local.clear();
	soda::advise(local, SODA_COLD);
	check_paged();
	const std::uint64_t before = soda::stats().fam_bytes;
	none.close();
	MUST(!none && soda::stats().fam_bytes == before - 3 * buffer);
	none.close();
	soda::array<double> again(1);
	soda_free(again.release());
	MUST(!again);
}

void case_files()
{
	const std::size_t n = 3 * buffer / sizeof(int);
	auto file = soda::open<int>("numbers", SODA_WRITABLE | SODA_CREATE, n);

	std::iota(file.begin(), file.end(), 0);
	MUST(thrown([] { soda::open<int>("numbers", SODA_WRITABLE); }) ==
	     std::errc::device_or_resource_busy);
	file.close();
	const auto read = soda::open<const int>("numbers", SODA_READ_ONLY);
	MUST(read.size() == n);
	for (std::size_t i = 0; i < n; i++)
		MUST(read[i] == static_cast<int>(i));
	auto changed = soda::open<int>("numbers", SODA_PRIVATE);
	changed[0] = 5;
	MUST(read[0] == 0 && changed[1] == 1);
	MUST(thrown([] { soda::open<int>("numbers", SODA_READ_ONLY); }) ==
	     std::errc::invalid_argument);
	MUST(thrown([] { soda::open<const int>("none", SODA_READ_ONLY); }) ==
	     std::errc::no_such_file_or_directory);
	struct odd {
		char text[7];
	};
	const std::uint64_t before = soda::stats().fam_bytes;
	MUST(thrown([] { soda::open<const odd>("numbers", SODA_READ_ONLY); }) ==
	     std::errc::invalid_argument);
	MUST(soda::stats().fam_bytes == before);
	check_paged();
}

void case_publish()
{
	soda::array<long> a(1000);

	std::fill(a.begin(), a.end(), 3L);
	a.publish("thousand");
	const soda::array<const long> b = soda::open_published<long>("thousand");
	MUST(b.size() == 1000 && std::accumulate(b.begin(), b.end(), 0L) == 3000);
	MUST(thrown([&] { a.publish("again"); }) == std::errc::connection_already_in_progress);
	MUST(thrown([] { soda::open_published<long>("none"); }) ==
	     std::errc::no_such_file_or_directory);
}

void case_errors()
{
	soda::config cfg;

	MUST(thrown([&] { soda::init(cfg); }) == std::errc::connection_already_in_progress);
	const std::error_code full = thrown([] { soda::array<char> a(std::size_t{ 1 } << 40); });
	MUST(full == std::errc::no_space_on_device && full.value() == ENOSPC);
	MUST(full.category() == soda::category() && !std::strcmp(soda::category().name(), "soda"));
	MUST(full.message() == std::generic_category().message(ENOSPC));
	std::vector<char, soda::allocator<char>> v;
	MUST(thrown([&] { v.resize(std::size_t{ 1 } << 40); }) == std::errc::no_space_on_device);
	MUST(v.empty());
	MUST(thrown([] { soda::array<char> a(0); }) == std::errc::invalid_argument);
	MUST(thrown([] { soda::array<char> a(1, 0x80000000u); }) == std::errc::invalid_argument);
	MUST(thrown([] { (void)soda::memory_resource(SODA_SEALED).allocate(1, 8192); }) ==
	     std::errc::invalid_argument);
	try {
		soda::array<double> a(~std::size_t{ 0 } / 4);
		MUST(!"too large");
	} catch (const std::bad_array_new_length &) {
	}
	try {
		soda::array<char> a(std::size_t{ 1 } << 40);
	} catch (const std::exception &e) {
		std::printf("%s\n", e.what());
	}
}

/* Uses of a span that both standards allow. */
long sum(soda::span<const int> s)
{
	return std::accumulate(s.begin(), s.end(), 0L);
}

void case_spans()
{
	soda::array<int> a(10);
	std::vector<int> v(10, 2);
	const std::vector<int> constant(3, 1);
	int plain[4] = { 1, 2, 3, 4 };
	soda::span<int> s(a);
	soda::span deduced(v), pair(plain, 2u);

	static_assert(std::is_same_v<decltype(deduced), soda::span<int>>);
	static_assert(!std::is_constructible_v<soda::span<int>, const std::vector<int> &>);
	static_assert(!std::is_constructible_v<soda::span<int>, std::vector<long> &>);
	static_assert(std::is_trivially_copyable_v<soda::span<int>>);
	std::iota(s.begin(), s.end(), 0);
	MUST(sum(a) == 45 && sum(v) == 20 && sum(constant) == 3 && sum(plain) == 10 &&
	     sum(s) == 45);
	MUST(sum(pair) == 3 && sum(soda::span<const int>()) == 0);
	MUST(s.size() == 10 && s.size_bytes() == 40 && !s.empty() && s.data() == a.data());
	MUST(s.front() == 0 && s.back() == 9 && *s.rbegin() == 9 && *(s.rend() - 1) == 0);
	MUST(sum(s.subspan(8)) == 17 && sum(s.subspan(1, 2)) == 3);
	MUST(sum(s.first(2)) == 1 && sum(s.last(2)) == 17);
	s[3] = 100;
	MUST(a[3] == 100);
}

/* C's initialiser and C's names, in C++. */
soda_config at_start = SODA_CONFIG_INIT;

void case_names()
{
	soda_config cfg = SODA_CONFIG_INIT;
	soda_msg_options start{};
	soda_move_buffer_options reserve{};
	soda_move_arrow_options arrow{};
	soda_move_transfer transfer = SODA_MOVE_READS;

	MUST(cfg.struct_bytes == sizeof(cfg) && at_start.struct_bytes == sizeof(cfg));
	cfg.struct_bytes = 0;
	for (std::size_t i = 0; i < sizeof(cfg); i++)
		MUST(reinterpret_cast<const char *>(&cfg)[i] == 0);
	MUST(start.ranks == 0 && reserve.copies == 0 && arrow.align == 0 && transfer == 1);
	MUST(std::string(soda_version()).size() >= 5);
}

/* Their destructors come at the end, and touch what they have. */
std::vector<std::string, soda::allocator<std::string>> strings;
std::pmr::map<int, std::pmr::string> tree(soda::resource());
struct last_words {
	~last_words()
	{
		if (!strings.empty())
			std::printf("%zu %s\n", strings.size(), strings.back().c_str());
	}
} last;

void case_statics()
{
	for (std::size_t i = 0; i < 3 * buffer / sizeof(std::string); i++)
		strings.push_back(std::string(20, static_cast<char>('a' + i % 26)));
	for (int i = 0; i < 1000; i++)
		tree[i] = "a string that has to be allocated, too";
	check_paged();
}

const struct {
	const char *name;
	void (*run)();
} cases[] = {
	{ "vector", case_vector },   { "nodes", case_nodes },	  { "pmr", case_pmr },
	{ "sizes", case_sizes },     { "array", case_array },	  { "files", case_files },
	{ "publish", case_publish }, { "errors", case_errors },	  { "spans", case_spans },
	{ "names", case_names },     { "statics", case_statics },
};

} // namespace

int main(int argc, char **argv)
{
	soda::config cfg;

	if (argc == 1) {
		for (const auto &c : cases)
			std::printf("%s\n", c.name);
		return 0;
	}
	cfg.buffer = "1M";
	cfg.chunk_bytes = 16 << 10;
	cfg.threads = 1;
	soda::init(cfg);
	for (const auto &c : cases) {
		if (!std::strcmp(c.name, argv[1])) {
			c.run();
			return 0;
		}
	}
	return 2;
}
