/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * SODA in C++: soda.h as an allocator, a memory resource, arrays that own their memory, and errors
 * as exceptions.  C++17 or later; all of it is in this header, there is nothing to link but
 * libsoda.
 *
 *   std::vector<double, soda::allocator<double>> v(n);         containers
 *   std::pmr::unordered_map<int, int> m(soda::resource());     containers of std::pmr
 *   soda::array<double> a(n);                                  zeros, of which none is touched
 *   auto graph = soda::open<const int>("graph", SODA_READ_ONLY);    a file of the server
 *
 * Errors.  A function that can fail throws std::system_error.  Its code has an errno value and the
 * category soda::category(), and compares with std::errc; what() begins with the sentence of
 * soda_last_error().  Sizes that overflow are std::bad_array_new_length.  Functions that say
 * noexcept do not fail.
 *
 * Sizes are in elements, unless a name says bytes.  Threads: as soda.h says; an object of these
 * classes is used by one thread at a time, as those of the standard library are.
 *
 * The end.  At exit fabric memory stays for as long as the process does, so that containers may
 * have static storage; files are written back before the destructors of such arrays.
 * soda_shutdown() is for programs that have no container and no array any more.  The child of a
 * fork may read them; it cannot free them, and ends by _exit().
 */
#ifndef SODA_HPP
#define SODA_HPP

#include <soda.h>

#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <memory_resource>
#include <new>
#include <string>
#include <system_error>
#include <type_traits>
#include <utility>

#if __cplusplus < 201703L
#error "soda.hpp needs C++17: -std=c++17"
#endif
#if __cplusplus >= 202002L
#include <span>
#endif

namespace soda
{

/* Allocations of so many bytes and more are objects of their own, smaller ones are of the heap. */
inline constexpr std::size_t object_bytes = std::size_t{ 4 } << 20;

/* Errors */

namespace detail
{

class SODA_API error_category : public std::error_category
{
public:
	const char *name() const noexcept override
	{
		return "soda";
	}
	std::string message(int value) const override
	{
		return std::generic_category().message(value);
	}
	/* as std::errc */
	std::error_condition default_error_condition(int value) const noexcept override
	{
		return std::error_condition(value, std::generic_category());
	}
};

} // namespace detail

/* The category of errors of SODA: their values are those of errno. */
SODA_API inline const std::error_category &category() noexcept
{
	static const detail::error_category only;

	return only;
}

namespace detail
{

/* value: of errno. */
[[noreturn]] inline void fail(int value, const char *sentence)
{
	throw std::system_error(std::error_code(value, category()), sentence);
}

/* ret: what a function of soda.h returned. */
inline void check(int ret)
{
	if (ret < 0)
		fail(-ret, soda_last_error());
}

inline std::size_t bytes_of(std::size_t n, std::size_t each)
{
	if (n > static_cast<std::size_t>(PTRDIFF_MAX) / each)
		throw std::bad_array_new_length();
	return n * each;
}

/*
 * At least one byte, at the alignment.  With flags (of soda_alloc()) always an object, for the heap
 * has none; an alignment above the smallest chunk is the heap's, which has no flags then.
 */
inline void *allocate(std::size_t bytes, std::size_t alignment, unsigned flags)
{
	void *p = nullptr;

	if (bytes == 0)
		bytes = 1;
	if (alignment > 4096 && flags)
		fail(EINVAL, "an alignment of more than 4096 bytes, with flags");
	if (alignment <= 4096 && (flags || bytes >= object_bytes))
		p = soda_alloc(bytes, flags);
	else if (alignment > alignof(std::max_align_t))
		p = soda_aligned_alloc(alignment, bytes);
	else
		p = soda_malloc(bytes);
	/* a library without the heap */
	if (!p && errno == ENOTSUP && !flags && alignment <= 4096)
		p = soda_alloc(bytes, 0);
	if (!p)
		fail(errno, soda_last_error());
	return p;
}

} // namespace detail

/*
 * Memory for containers of the standard library: any of them with the same Flags frees what another
 * one has allocated.  From object_bytes on an allocation is an object (soda_alloc()), else a block
 * of the heap (soda_malloc()).
 *
 * Flags: of soda_alloc().  Where they are not 0 each allocation is an object, which takes at least
 * a chunk: for vectors, not for the nodes of maps.
 *
 * A container that is filled by its constructor stores to each of its pages; soda::array does not.
 */
template <class T, unsigned Flags = 0> class allocator
{
public:
	using value_type = T;
	using is_always_equal = std::true_type;
	using propagate_on_container_move_assignment = std::true_type;
	template <class U> struct rebind {
		using other = allocator<U, Flags>;
	};

	allocator() noexcept = default;
	template <class U> allocator(const allocator<U, Flags> &) noexcept
	{
	}

	[[nodiscard]] T *allocate(std::size_t n)
	{
		return static_cast<T *>(
			detail::allocate(detail::bytes_of(n, sizeof(T)), alignof(T), Flags));
	}
	void deallocate(T *p, std::size_t) noexcept
	{
		soda_free(p);
	}
};

template <class T, class U, unsigned Flags>
bool operator==(const allocator<T, Flags> &, const allocator<U, Flags> &) noexcept
{
	return true;
}

template <class T, class U, unsigned Flags>
bool operator!=(const allocator<T, Flags> &, const allocator<U, Flags> &) noexcept
{
	return false;
}

/*
 * The same for containers of std::pmr.  Two with the same flags are equal.  It has no memory of its
 * own: what it has allocated may outlive it.
 */
class SODA_API memory_resource : public std::pmr::memory_resource
{
public:
	explicit memory_resource(unsigned flags = 0) noexcept : flags_(flags)
	{
	}
	unsigned flags() const noexcept
	{
		return flags_;
	}

private:
	void *do_allocate(std::size_t bytes, std::size_t alignment) override
	{
		return detail::allocate(bytes, alignment, flags_);
	}
	void do_deallocate(void *p, std::size_t, std::size_t) override
	{
		soda_free(p);
	}
	bool do_is_equal(const std::pmr::memory_resource &other) const noexcept override
	{
		const auto *same = dynamic_cast<const memory_resource *>(&other);

		return same && same->flags_ == flags_;
	}

	unsigned flags_;
};

/* One without flags, which lives as long as the process. */
SODA_API inline memory_resource *resource() noexcept
{
	/* its destructor is not called: containers with static storage may end later */
	static union immortal {
		memory_resource value;
		immortal() noexcept : value()
		{
		}
		~immortal()
		{
		}
	} only;

	return &only.value;
}

/* Spans */

#if __cplusplus >= 202002L
using std::span;
#else
/* The part of C++20's std::span<T> that has no fixed extent. */
template <class T> class span
{
public:
	using element_type = T;
	using value_type = std::remove_cv_t<T>;
	using size_type = std::size_t;
	using difference_type = std::ptrdiff_t;
	using pointer = T *;
	using reference = T &;
	using iterator = T *;
	using reverse_iterator = std::reverse_iterator<iterator>;

	constexpr span() noexcept = default;
	constexpr span(T *data, std::size_t size) noexcept : data_(data), size_(size)
	{
	}
	constexpr span(T *first, T *last) noexcept
		: data_(first), size_(static_cast<std::size_t>(last - first))
	{
	}
	template <std::size_t N> constexpr span(T (&array)[N]) noexcept : data_(array), size_(N)
	{
	}
	/* A range that std::data() and std::size() take: a vector, an array, another span. */
	template <class R, class P = decltype(std::data(std::declval<R &>())),
		  class = decltype(std::size(std::declval<R &>())),
		  class = std::enable_if_t<
			  !std::is_array_v<std::remove_reference_t<R>> &&
			  std::is_convertible_v<std::remove_pointer_t<P> (*)[], T (*)[]>>>
	constexpr span(R &&range) : data_(std::data(range)), size_(std::size(range))
	{
	}

	constexpr T *data() const noexcept
	{
		return data_;
	}
	constexpr std::size_t size() const noexcept
	{
		return size_;
	}
	constexpr std::size_t size_bytes() const noexcept
	{
		return size_ * sizeof(T);
	}
	[[nodiscard]] constexpr bool empty() const noexcept
	{
		return size_ == 0;
	}
	constexpr T &operator[](std::size_t i) const
	{
		return data_[i];
	}
	constexpr T &front() const
	{
		return data_[0];
	}
	constexpr T &back() const
	{
		return data_[size_ - 1];
	}
	constexpr iterator begin() const noexcept
	{
		return data_;
	}
	constexpr iterator end() const noexcept
	{
		return data_ + size_;
	}
	constexpr reverse_iterator rbegin() const noexcept
	{
		return reverse_iterator(end());
	}
	constexpr reverse_iterator rend() const noexcept
	{
		return reverse_iterator(begin());
	}
	constexpr span first(std::size_t n) const
	{
		return span(data_, n);
	}
	constexpr span last(std::size_t n) const
	{
		return span(data_ + (size_ - n), n);
	}
	/* n: the rest, unless it is said. */
	constexpr span subspan(std::size_t from, std::size_t n = static_cast<std::size_t>(-1)) const
	{
		return span(data_ + from, n == static_cast<std::size_t>(-1) ? size_ - from : n);
	}

private:
	T *data_ = nullptr;
	std::size_t size_ = 0;
};

template <class R>
span(R &&) -> span<std::remove_pointer_t<decltype(std::data(std::declval<R &>()))>>;
template <class T> span(T *, std::size_t) -> span<T>;
#endif

/* The runtime */

/* The argument of init(): struct soda_config, initialised. */
struct config : soda_config {
	config() noexcept : soda_config SODA_CONFIG_INIT
	{
	}
};

/* As soda_init(). Optional. */
inline void init(const soda_config &cfg)
{
	detail::check(soda_init(&cfg));
}

/* Wait until all dirty data are on the server, as soda_sync(NULL, 0). */
inline void sync()
{
	detail::check(soda_sync(nullptr, 0));
}

/* Counters, as soda_get_stats(). */
inline soda_stats stats() noexcept
{
	soda_stats out = {};

	soda_get_stats(&out, sizeof(out));
	return out;
}

namespace detail
{

/* Where a range begins, for functions that take addresses which are not const. */
template <class R> void *address(R &range)
{
	return const_cast<void *>(static_cast<const volatile void *>(std::data(range)));
}

template <class R> std::size_t bytes(R &range)
{
	return std::size(range) * sizeof(*std::data(range));
}

} // namespace detail

/*
 * Advice on memory of an object: of a container, an array, a span.  Parts of a chunk at its ends
 * count as soda_advise() says.  Nothing is done where the range is empty.
 */
template <class R> void advise(R &&range, soda_advice advice)
{
	if (std::size(range))
		detail::check(soda_advise(detail::address(range), detail::bytes(range), advice));
}

/* Start fetching it, as soda_prefetch(). */
template <class R> void prefetch(R &&range)
{
	if (std::size(range))
		detail::check(soda_prefetch(detail::address(range), detail::bytes(range)));
}

/* Wait until its dirty data are on the server, as soda_sync(). */
template <class R> void sync(R &&range)
{
	if (std::size(range))
		detail::check(soda_sync(detail::address(range), detail::bytes(range)));
}

/*
 * A range that stays resident while this lives, as soda_hold(): for system calls and for libraries
 * that let others read it.  At most a twentieth of the page buffer at a time, all together.
 */
class hold
{
public:
	template <class R, class = decltype(std::data(std::declval<R &>()))>
	explicit hold(R &&range)
	{
		const int ret = std::size(range)
					? soda_hold(detail::address(range), detail::bytes(range))
					: 1;

		detail::check(ret);
		if (ret == 0) {
			addr_ = detail::address(range);
			bytes_ = detail::bytes(range);
		}
	}
	hold(hold &&other) noexcept
		: addr_(std::exchange(other.addr_, nullptr)), bytes_(other.bytes_)
	{
	}
	hold &operator=(hold &&other) noexcept
	{
		if (this != &other) {
			release();
			addr_ = std::exchange(other.addr_, nullptr);
			bytes_ = other.bytes_;
		}
		return *this;
	}
	~hold()
	{
		release();
	}
	void release() noexcept
	{
		if (addr_)
			soda_unhold(std::exchange(addr_, nullptr), bytes_);
	}

private:
	const void *addr_ = nullptr;
	std::size_t bytes_ = 0;
};

/*
 * An object of fabric memory that is an array of T, and its owner; it can be moved, not copied.  T
 * is plain data: no constructor and no destructor is called.
 */
template <class T> class array
{
	static_assert(
		std::is_trivially_copyable_v<T> && std::is_trivially_destructible_v<T>,
		"soda::array is for plain data; std::vector<T, soda::allocator<T>> for others");
	static_assert(alignof(T) <= 4096, "objects are aligned to chunks");

public:
	using element_type = T;
	using value_type = std::remove_cv_t<T>;
	using size_type = std::size_t;
	using difference_type = std::ptrdiff_t;
	using pointer = T *;
	using reference = T &;
	using iterator = T *;

	/* No object. */
	array() noexcept = default;
	/* n elements, which are zeros; n is not 0.  flags: of soda_alloc(). */
	explicit array(std::size_t n, unsigned flags = 0)
		: data_(static_cast<T *>(soda_alloc(detail::bytes_of(n, sizeof(T)), flags))),
		  size_(n)
	{
		static_assert(!std::is_const_v<T>, "an array of constants would be zeros for ever");
		if (!data_)
			detail::fail(errno, soda_last_error());
	}
	/* An object that a function of soda.h has returned; n elements.  It is this array's now. */
	array(T *object, std::size_t n) noexcept : data_(object), size_(n)
	{
	}
	array(array &&other) noexcept
		: data_(std::exchange(other.data_, nullptr)), size_(std::exchange(other.size_, 0))
	{
	}
	array &operator=(array &&other) noexcept
	{
		if (this != &other) {
			soda_free(mutable_data());
			data_ = std::exchange(other.data_, nullptr);
			size_ = std::exchange(other.size_, 0);
		}
		return *this;
	}
	/* As soda_free(): where a file cannot be written back, that is logged; close() throws. */
	~array()
	{
		soda_free(mutable_data());
	}

	T *data() const noexcept
	{
		return data_;
	}
	std::size_t size() const noexcept
	{
		return size_;
	}
	std::size_t size_bytes() const noexcept
	{
		return size_ * sizeof(T);
	}
	[[nodiscard]] bool empty() const noexcept
	{
		return size_ == 0;
	}
	explicit operator bool() const noexcept
	{
		return data_ != nullptr;
	}
	T &operator[](std::size_t i) const
	{
		return data_[i];
	}
	T *begin() const noexcept
	{
		return data_;
	}
	T *end() const noexcept
	{
		return data_ + size_;
	}

	/* Free the object, as soda_try_free().  Where that throws the array still owns it. */
	void close()
	{
		detail::check(soda_try_free(mutable_data()));
		release();
	}
	/* The object is the caller's, for soda_free(); the array has none. */
	T *release() noexcept
	{
		size_ = 0;
		return std::exchange(data_, nullptr);
	}
	/* As soda_set_name(). */
	void set_name(const char *name)
	{
		detail::check(soda_set_name(mutable_data(), name));
	}
	/* As soda_publish(): from now on nobody stores to it. */
	void publish(const char *name)
	{
		detail::check(soda_publish(mutable_data(), name));
	}

private:
	void *mutable_data() const noexcept
	{
		return const_cast<value_type *>(data_);
	}

	T *data_ = nullptr;
	std::size_t size_ = 0;
};

namespace detail
{

/* EINVAL where the object has no whole number of elements. */
template <class T> array<T> array_of(void *object, std::size_t bytes)
{
	if (!object)
		fail(errno, soda_last_error());
	array<T> out(static_cast<T *>(object), bytes / sizeof(T));

	if (bytes % sizeof(T))
		fail(EINVAL, "the object has no whole number of elements of this size");
	return out;
}

} // namespace detail

/*
 * A file of the server's export directory, as soda_alloc_file().  n: elements; 0: as long as the
 * file is.  With SODA_READ_ONLY T is const: soda::open<const int>(...); else that is EINVAL.
 */
template <class T> array<T> open(const char *name, unsigned flags, std::size_t n = 0)
{
	std::size_t bytes = 0;
	void *object;

	if (!std::is_const_v<T> && (flags & SODA_READ_ONLY))
		detail::fail(EINVAL, "an array of a READ_ONLY file has elements that are const");
	object = soda_alloc_file(name, detail::bytes_of(n, sizeof(T)), flags, &bytes);
	return detail::array_of<T>(object, bytes);
}

/* An object that a program of the same user has published, as soda_open_published(). */
template <class T> array<const T> open_published(const char *name)
{
	std::size_t bytes = 0;
	void *object = soda_open_published(name, &bytes);

	return detail::array_of<const T>(object, bytes);
}

} // namespace soda

#endif
