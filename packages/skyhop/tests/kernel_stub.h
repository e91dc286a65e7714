/* Stub of a kernel: declarations that cc/kernel_module.h and the algorithms use in addition to those of skyhop_cc.h.
 * They are enough to compile; nothing runs. The test inserts the declarations of skyhop_cc.h at the line that says so. */
#include <stddef.h>

typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;
typedef int s32;
typedef long long s64;
typedef u32 __be32;
typedef long ssize_t;
typedef long long loff_t;
typedef _Bool bool;
#define true 1
#define false 0

#define KERNEL_VERSION(a, b, c) (((a) << 16) + ((b) << 8) + (c))
#define HZ 100
#define GFP_ATOMIC 0
#define GFP_KERNEL 0
#define EEXIST 17
#define EFAULT 14
#define EINVAL 22
#define ENOMEM 12
#define ENOSPC 28
#define __user
#define __force
#define __init __attribute__((used))
#define __exit __attribute__((used))
#define __maybe_unused __attribute__((unused))
#define max_t(type, a, b) ((type)(a) > (type)(b) ? (type)(a) : (type)(b))
#define container_of(p, type, member) ((type *)((char *)(p) - offsetof(type, member)))
#define READ_ONCE(x) (x)
#define ntohl(x) __builtin_bswap32(x)

struct module;
#define THIS_MODULE ((struct module *)0)
void __module_get(struct module *module);
void module_put(struct module *module);
#define module_init(function) struct module
#define module_exit(function) struct module
#define MODULE_DESCRIPTION(text) struct module
#define MODULE_LICENSE(text) struct module

struct list_head {
	struct list_head *next, *prev;
};
#define LIST_HEAD(name) struct list_head name = { &name, &name }
void list_add(struct list_head *one, struct list_head *head);
#define list_for_each_entry_safe(one, n, head, member)                                                    \
	for (one = container_of((head)->next, typeof(*one), member),                                      \
	    n = container_of(one->member.next, typeof(*one), member);                                     \
	     &one->member != (head); one = n, n = container_of(n->member.next, typeof(*one), member))

struct hlist_node {
	struct hlist_node *next, **pprev;
};
struct hlist_head {
	struct hlist_node *first;
};
#define DECLARE_HASHTABLE(name, bits) struct hlist_head name[1 << (bits)]
#define HASH_SIZE(table) (sizeof(table) / sizeof(table[0]))
#define hash_init(table) memset(table, 0, sizeof(table))
#define hash_add(table, node, key) hlist_add_head(node, &table[(key) % HASH_SIZE(table)])
#define hlist_entry(node, type, member) ((node) ? container_of(node, type, member) : NULL)
#define hash_for_each_possible(table, one, member, key)                                                   \
	for (one = hlist_entry(table[(key) % HASH_SIZE(table)].first, typeof(*one), member); one;         \
	     one = hlist_entry(one->member.next, typeof(*one), member))
#define hash_for_each_safe(table, bucket, n, one, member)                                                 \
	for (bucket = 0; bucket < (int)HASH_SIZE(table); bucket++)                                        \
		for (one = hlist_entry(table[bucket].first, typeof(*one), member);                        \
		     one && ((n = one->member.next), 1); one = hlist_entry(n, typeof(*one), member))
void hlist_add_head(struct hlist_node *one, struct hlist_head *head);
void hash_del(struct hlist_node *one);

typedef struct {
	int waiting;
} wait_queue_head_t;
typedef u32 __poll_t;
#define EPOLLIN 1
#define EPOLLERR 8
#define EPOLLRDNORM 64
struct file;
struct poll_table_struct;
void init_waitqueue_head(wait_queue_head_t *queue);
void wake_up_interruptible(wait_queue_head_t *queue);
void poll_wait(struct file *file, wait_queue_head_t *queue, struct poll_table_struct *table);

typedef struct {
	int held;
} spinlock_t;
struct mutex {
	int held;
};
#define DEFINE_MUTEX(name) struct mutex name
void spin_lock_init(spinlock_t *lock);
void spin_lock_bh(spinlock_t *lock);
void spin_unlock_bh(spinlock_t *lock);
void mutex_lock(struct mutex *lock);
void mutex_unlock(struct mutex *lock);

void *kzalloc(size_t size, int flags);
void *kvzalloc(size_t size, int flags);
void *kvcalloc(size_t count, size_t size, int flags);
void kfree(const void *place);
void kvfree(const void *place);
void *memcpy(void *to, const void *from, size_t size);
void *memset(void *place, int byte, size_t size);
int memcmp(const void *a, const void *b, size_t size);
unsigned long copy_from_user(void *to, const void __user *from, unsigned long size);
unsigned long copy_to_user(void __user *to, const void *from, unsigned long size);

extern unsigned long volatile jiffies;
u64 ktime_get_ns(void);
u32 get_random_u32(void);

struct inode;
struct file {
	void *private_data;
};
struct proc_ops {
	ssize_t (*proc_read)(struct file *file, char __user *buffer, size_t size, loff_t *at);
	ssize_t (*proc_write)(struct file *file, const char __user *buffer, size_t size, loff_t *at);
	__poll_t (*proc_poll)(struct file *file, struct poll_table_struct *table);
	int (*proc_release)(struct inode *inode, struct file *file);
	loff_t (*proc_lseek)(struct file *file, loff_t offset, int whence);
};
loff_t noop_llseek(struct file *file, loff_t offset, int whence);
struct proc_dir_entry;
struct proc_dir_entry *proc_create(const char *name, u16 mode, void *parent, const struct proc_ops *ops);
void remove_proc_entry(const char *name, void *parent);

struct net {
	u64 net_cookie;
};

#define SKYHOP_BITS(width) : width
#define skyhop_bits(p, field) ((p)->field)
static inline u32 min_u32(u32 a, u32 b);
static inline u32 max_u32(u32 a, u32 b);

/* STRUCTS */

#undef skyhop_bits

/* The kernel's are its own; these stand for those that it does not inline. */
static inline void *inet_csk_ca(const struct sock *sk)
{
	return ((struct inet_connection_sock *)(size_t)sk)->icsk_ca_priv;
}
#define inet_csk(sk) ((struct inet_connection_sock *)(size_t)(sk))
struct net *sock_net(const struct sock *sk);
int tcp_register_congestion_control(struct tcp_congestion_ops *ops);
void tcp_unregister_congestion_control(struct tcp_congestion_ops *ops);
u32 minmax_running_max(struct minmax *m, u32 win, u32 t, u32 meas);
u32 minmax_running_min(struct minmax *m, u32 win, u32 t, u32 meas);
