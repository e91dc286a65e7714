/* SPDX-License-Identifier: MIT OR GPL-2.0 */
/*
 * Packets in flight and packets lost at the departure of a packet: P.tx_in_flight and P.lost of draft-ietf-ccwg-bbr.
 * Linux stores neither with its packets (BBRv3's patch adds both), and calls no hook for a lost packet. This header
 * derives both from what stock hooks see.
 *
 * Every ACK leaves a snapshot: `delivered`, the next sequence number, the packets in flight, and the packets lost
 * and retransmitted so far. A packet stores the value of `delivered` at its departure, and the rate sample of its
 * ACK reports it (prior_delivered), together with the packet's last sequence number (last_end_seq). So the packet
 * left after the latest snapshot whose `delivered` is not larger. Between two ACKs Linux first retransmits lost
 * packets and then sends new data in order, and each packet adds its size to what is in flight.
 *
 * Accuracy: in segments of mss_cache, with a snapshot for every ACK, both values are exact for new data. They are
 * off
 * - for a retransmission, by the other retransmissions that left after it between the same two ACKs;
 * - by the packets that a timer marked as lost since the last ACK, until the next one;
 * - where packets are shorter than mss_cache: they count as less than one each;
 * - where Linux sends several segments as one packet: BBRv3's patch takes the count after all of them, this header
 *   that of the segment itself, so they differ by less than one burst;
 * - where more than 256 packets are in flight. Snapshots are then further apart, so that the ring spans a window;
 *   deliveries since the snapshot are subtracted, but losses and retransmissions since cannot be told from those up
 *   to the next one. Without losses that is exact, too. A packet older than the ring has the count 0: unknown.
 *
 * The number of newly lost packets is known (tp->lost), but not which they are. A loss is detected when a packet
 * sent later arrives (RACK): the lost packets are assumed to be those just before the packets that the ACK delivers.
 * With Linux's threshold that is up to three packets late for the first loss of an episode, and exact for the next
 * ones. On a timeout they are those that begin at snd_una.
 */
#ifndef SKYHOP_FLIGHT_H
#define SKYHOP_FLIGHT_H

#include "skyhop_cc.h"

/* Size of the ring, a power of two. It takes 5 KiB; older kernels allowed a socket 20 KiB of such storage
 * (optmem_max). */
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
	u32 taken; /* snapshots taken in total; the last ones are in the ring */
};

/* State at the departure of a packet, or of the last of several in a row. */
struct flight_departure {
	u32 in_flight; /* the packet included; 0: unknown */
	u32 lost;
};

static inline struct flight_snapshot *flight_at(struct flight *flight, u32 index)
{
	return &flight->ring[index & (FLIGHT_SNAPSHOTS - 1)];
}

/* Distance between snapshots, in packets delivered, at which the ring spans what is in flight. */
static inline u32 flight_spacing(u32 in_flight)
{
	return in_flight / (FLIGHT_SNAPSHOTS / 2);
}

static inline bool flight_has_moved(const struct tcp_sock *tp, const struct flight_snapshot *last)
{
	u32 since = tp->delivered - last->delivered;

	return tp->lost != last->lost || (since && since >= flight_spacing(tcp_packets_in_flight(tp)));
}

/* Called in init. */
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

/* Called at the end of each ACK, and when a timeout has marked packets as lost. */
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

/* Neither `delivered` nor sequence numbers ever decrease, so the ring is sorted by both. */
static inline bool flight_is_before(const struct flight_snapshot *snapshot, bool by_sequence, u32 value)
{
	return !after(by_sequence ? snapshot->snd_nxt : snapshot->delivered, value);
}

/* Find the latest snapshot that is not after `value`; false: all are after it. */
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

/* Number of packets from a sequence number to a later one. */
static inline u32 flight_packets(struct sock *sk, u32 from, u32 to)
{
	u32 mss = max_u32(tcp_sk(sk)->mss_cache, 1);

	return after(to, from) ? (to - from + mss - 1) / mss : 0;
}

/* Departure of the packet that ends at `end_seq` and left when `delivered` had the given value. */
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

/* Departure of the last of `count` consecutive packets that begin at snd_una. */
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
