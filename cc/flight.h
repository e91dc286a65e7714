/* SPDX-License-Identifier: MIT OR GPL-2.0 */
/*
 * What was in flight, and how many packets had been lost, when a packet left: what draft-ietf-ccwg-bbr calls
 * P.tx_in_flight and P.lost. Linux keeps neither with its packets (BBRv3's patch adds both), and calls no hook for
 * a lost packet. Both are worked out here, from what stock hooks show:
 *
 * Every ACK leaves a snapshot: `delivered`, the next sequence number, what is in flight, the packets lost and
 * sent again so far. A packet remembers the value of `delivered` when it left, and the rate sample of its ACK
 * tells that (prior_delivered) with its last sequence number (last_end_seq). So it left behind the latest snapshot whose
 * `delivered` is no more than that; between two ACKs Linux first sends again what is lost, then new data in order,
 * and each adds what it has to what is in flight.
 *
 * How exact that is. In segments of mss_cache, with a snapshot for every ACK, the two are right for new data. They
 * are off
 * - for a retransmission by the others that left behind it between the same two ACKs;
 * - by what a timer marked as lost since the last ACK, until the next one;
 * - where packets are shorter than mss_cache: they count as less than one each;
 * - where Linux sends several segments as one packet, whose count in BBRv3's patch is that behind all of
 *   them: by less than one burst, as the segment's own is taken here;
 * - where more than 256 packets are in flight. Snapshots are then further apart, so that the ring spans a window; what
 *   was delivered since the snapshot is taken off, what was lost or sent again since is not told from what comes
 *   before the next. Without losses that is exact, too.
 * A packet that is older than the ring has the count 0: unknown.
 *
 * Of packets newly lost their number is known (tp->lost), not which they are. Loss is found where something sent
 * later arrives (RACK): they are taken for those right in front of what the ACK delivers. With Linux's threshold that is
 * up to three packets late for the first loss of an episode, and right for the next ones. On a timeout they are those
 * that begin at snd_una.
 */
#ifndef SKYHOP_FLIGHT_H
#define SKYHOP_FLIGHT_H

#include "skyhop_cc.h"

/* A power of two. 5 KiB: as much as a socket may hold of such things was 20 KiB in older kernels (optmem_max). */
#define FLIGHT_SNAPSHOTS 256

struct flight_snapshot {
	u32 delivered;
	u32 snd_nxt;
	u32 in_flight;
	u32 lost;
	u32 sent_again;
};

struct flight {
	struct flight_snapshot ring[FLIGHT_SNAPSHOTS];
	u32 taken; /* in all; the last ones are in the ring */
};

/* When a packet, or the last of several in a row, left. */
struct flight_departure {
	u32 in_flight; /* with it; 0: unknown */
	u32 lost;
};

static inline struct flight_snapshot *flight_at(struct flight *flight, u32 index)
{
	return &flight->ring[index & (FLIGHT_SNAPSHOTS - 1)];
}

/* So far apart, in packets delivered, that the ring spans what is in flight. */
static inline u32 flight_spacing(u32 in_flight)
{
	return in_flight / (FLIGHT_SNAPSHOTS / 2);
}

static inline bool flight_has_moved(const struct tcp_sock *tp, const struct flight_snapshot *last)
{
	u32 since = tp->delivered - last->delivered;

	return tp->lost != last->lost || (since && since >= flight_spacing(tcp_packets_in_flight(tp)));
}

/* In init. */
static inline void flight_start(struct sock *sk, struct flight *flight)
{
	const struct tcp_sock *tp = tcp_sk(sk);

	flight->taken = 1;
	*flight_at(flight, 0) = (struct flight_snapshot){ .delivered = tp->delivered,
							  .snd_nxt = tp->snd_nxt,
							  .in_flight = tcp_packets_in_flight(tp),
							  .lost = tp->lost,
							  .sent_again = tp->total_retrans };
}

/* At the end of each ACK, and when a timeout has marked packets as lost. */
static inline void flight_snap(struct sock *sk, struct flight *flight)
{
	const struct tcp_sock *tp = tcp_sk(sk);
	struct flight_snapshot *next;

	if (!flight_has_moved(tp, flight_at(flight, flight->taken - 1)))
		return;
	next = flight_at(flight, flight->taken);
	next->delivered = tp->delivered;
	next->snd_nxt = tp->snd_nxt;
	next->in_flight = tcp_packets_in_flight(tp);
	next->lost = tp->lost;
	next->sent_again = tp->total_retrans;
	flight->taken++;
}

/* Neither `delivered` nor sequence numbers ever go back, so that the ring is sorted by both. */
static inline bool flight_is_before(const struct flight_snapshot *snapshot, bool by_sequence, u32 value)
{
	return !after(by_sequence ? snapshot->snd_nxt : snapshot->delivered, value);
}

/* The latest that is not after `value`; false: all are. */
static inline bool flight_find(struct flight *flight, bool by_sequence, u32 value, u32 *found)
{
	u32 kept = min_u32(flight->taken, FLIGHT_SNAPSHOTS);
	u32 oldest = flight->taken - kept;
	u32 place = 0, step;

	if (!flight_is_before(flight_at(flight, oldest), by_sequence, value))
		return false;
	for (step = FLIGHT_SNAPSHOTS / 2; step; step >>= 1) {
		u32 next = place + step;

		if (next < kept && flight_is_before(flight_at(flight, oldest + next), by_sequence, value))
			place = next;
	}
	*found = oldest + place;
	return true;
}

/* How many packets from a sequence number to a later one. */
static inline u32 flight_packets(struct sock *sk, u32 from, u32 to)
{
	u32 mss = max_u32(tcp_sk(sk)->mss_cache, 1);

	return after(to, from) ? (to - from + mss - 1) / mss : 0;
}

/* Of the packet that ends at `end_seq` and left when `delivered` stood at this. */
static inline struct flight_departure flight_of(struct sock *sk, struct flight *flight, u32 delivered, u32 end_seq)
{
	struct flight_departure departure = { 0, 0 };
	u32 sent_again = tcp_sk(sk)->total_retrans;
	const struct flight_snapshot *then;
	u32 found, gone;

	if (!flight_find(flight, false, delivered, &found))
		return departure;
	then = flight_at(flight, found);
	if (found + 1 != flight->taken)
		sent_again = flight_at(flight, found + 1)->sent_again;
	gone = min_u32(delivered - then->delivered, then->in_flight);
	departure.in_flight = then->in_flight - gone + (sent_again - then->sent_again) +
			      flight_packets(sk, then->snd_nxt, end_seq);
	departure.in_flight = max_u32(departure.in_flight, 1);
	departure.lost = then->lost;
	return departure;
}

/* Of the last of `count` packets in a row that begin at snd_una. */
static inline struct flight_departure flight_of_head(struct sock *sk, struct flight *flight, u32 count)
{
	const struct flight_snapshot *then;
	struct flight_departure departure = { 0, 0 };
	u32 una = tcp_sk(sk)->snd_una, found;

	if (!flight_find(flight, true, una, &found))
		return departure;
	then = flight_at(flight, found);
	departure.in_flight = then->in_flight + flight_packets(sk, then->snd_nxt, una) + count;
	departure.lost = then->lost;
	return departure;
}

#endif
