/* SPDX-License-Identifier: MIT OR GPL-2.0 */
/*
 * PCC Vivace (Dong et al., "PCC Vivace: Online-learning congestion control", NSDI 2018) as in its authors' program
 * for UDT (PCC-Uspace, branch NSDI-2018), started as latency-sensitive: the version that Mazilu, Valentine and
 * Parisis measured ("Evaluating learning congestion control schemes for LEO constellations", arXiv 2510.25498). It
 * is neither the paper's Vivace nor the authors' module for Linux, which is vivace.c.
 *
 * Time is divided into monitor intervals of a round trip, each sent at one rate. The utility of a rate is its 0.9th
 * power, less the rate times 11,330 times the slope of the RTT, and less the rate times the loss coefficient times
 * the share that is lost. From the start the rate doubles until utility falls (START). Then pairs of intervals, 5 %
 * more and 5 % less in random order, are compared (SEARCHING, PROBING), and the rate follows the gradient: a step of
 * up to 10 % is followed by another search, a larger one by a comparison of one interval with the one before
 * (MOVING). Steps of one sign grow, and so does their bound; a change of direction starts over.
 *
 * The share of a link of capacity C that it uses follows from the slope, which counts from 2 % on and then outweighs
 * everything else: the rate r grows until its higher probe is 1.05 r = 1.02 C, so r = 0.97 C. Then it falls by 5 %
 * to 0.92 C, and grows again by the gradient, 0.57 Mbit/s at 100, times a few. The mean is 0.95 C. While a queue
 * drains its slope is a reward, 11,330 r (1 - r / C), which is largest at r = C / 2: once START has filled the
 * queue, half of the link is left and has to be regained by such steps, which takes 6 s at an RTT of 100 ms and 11 s
 * at 200 ms.
 *
 * UDT acknowledges each packet with its interval's number. Here a packet belongs to the interval during which
 * `delivered` had the value that the packet's ACK reports for its departure; an interval begins and ends with an
 * ACK. The first ten packets, which Linux does not pace, do not make an interval faster than intended.
 *
 * Where the program differs from its description, its behaviour is kept:
 * - up to 50 losses of each interval of START do not count, because ignored losses are never subtracted from the 50;
 * - a missed deadline halves the rate, and below 1.55 Mbit/s the sender hibernates: but the function that checks for
 *   missed deadlines returns at once. This module behaves the same, unless `deadline` is 1. With deadlines, no flow
 *   survives an RTT of 200 ms: the first interval is late, and hibernation can end only where two packets per RTT
 *   are 0.4 Mbit/s or more, up to 58 ms.
 */
#include "minmax.h"
#include "pacing.h"
#include "pcc_math.h"

#define VIVUDT_ONE 1000
#define VIVUDT_PARAMS(P)                                                                                  \
	P(exponent, VIVUDT_ONE, 900, 100, 1000, "", "utility: exponent of the rate in Mbit/s")           \
	P(latency, 1, 11330, 0, 50000, "", "utility: coefficient of the RTT gradient; 0: as the authors' program") \
	P(loss, VIVUDT_ONE, 11350, 0, 100000, "", "utility: coefficient of the loss rate")               \
	P(mild_loss, VIVUDT_ONE, 1000, 0, 100000, "", "utility: coefficient of the loss rate up to 3 % loss") \
	P(bound, VIVUDT_ONE, 50, 1, 1000, "", "largest step, as part of the rate")                       \
	P(bound_growth, VIVUDT_ONE, 60, 0, 1000, "", "growth of that bound each time a step reaches it") \
	P(deadline, 1, 0, 0, 1, "", "1: halve the rate if feedback of an interval does not arrive in time") \
	P(window, 1, 100000, 4, 1000000, "packets", "upper bound of packets in flight; the rate is the actual limit")
SKYHOP_PARAMS(VIVUDT_PARAMS);

#define INTERVALS 32 /* intervals tracked at once; a power of two */
#define PROBES 4     /* a power of two */
#define HEADERS 52   /* bytes of IP and TCP: rates are those of IP packets, in bit/s */
#define MBIT 1000000
#define FIRST_RATE 800000 /* START doubles it before its first interval */
#define LEAST_RATE 1300000
#define LEAST_START_RATE 100000
#define MOST_RATE 1024000000ULL
#define HIBERNATION_RATE 40000
#define HIBERNATION_MARGIN 250000
#define HIBERNATION_DEPTHS 3
#define WAKING_RTT_US 58593 /* two packets of 1.5 kB (2^10) each are 0.4 Mbit (2^20) */
#define LEAST_CHANGE 500000
#define PROBE_PERCENT 5
#define MOVE_PERCENT 10
#define FIRST_RTT_US 100000
#define LEAST_PACKETS 10
#define MOST_PACKETS 3000
#define MOST_INTERVAL_US 1000000 /* longest RTT for the length of an interval; beyond it: */
#define LONG_INTERVAL_US 300000
#define START_LOSSES 50  /* losses of one interval that do not count in START */
#define START_SLOPE 20   /* hundredths: smaller slopes do not count in START either */
#define MILD_LOSS 30000  /* millionths, like all loss shares */
#define ALIKE_LOSS 10000
#define HEAVY_LOSS 50000
#define STOP_LOSS 500000
#define FEW_LOSSES 2
#define MOST_SWING 2
#define MOST_AMPLIFIER 2000 /* halves */
#define MOST_BOUNDARY 1000
#define DEADLINE_TENTHS 18 /* of the minimum RTT */
#define DEADLINE_RTTS 100  /* window of the minimum RTT, in intervals */
#define LEAST_DEADLINE_US 50000
#define MOST_DEADLINE_US 1000000
#define MOST_BITS (1ULL << 34) /* most bits of an interval */
#define MOST_SAMPLES 4096
#define AT_SHIFT 5           /* departure times are in units of 32 us, */
#define MOST_AT (1 << 17)    /* up to 4 s, */
#define MOST_RTT_US (1 << 20) /* and RTTs up to a second above the first, so that products fit 64 bits */
#define MOST_SLOPE 1000
#define MOST_UTILITY 4000000000000LL

struct vivudt_interval {
	u64 rate;         /* rate at the start of the interval */
	u64 began_ns;     /* when pacing released its first packet */
	u64 took_ns;
	u64 deadline_us;
	u64 origin_us;    /* departure of the first packet acknowledged */
	u64 at;           /* sums over the samples, relative to the origin */
	u64 at_squared;
	s64 rtt;
	s64 at_rtt;
	u32 origin_rtt_us;
	u32 samples;
	u32 first_delivered;
	u32 first_seq;
	u32 sent_before;  /* packets of the connection sent before the interval */
	u32 length;       /* intended number of packets */
	u32 sent;
	u32 acked;
};

/* Measured result of an interval. */
struct vivudt_result {
	u64 rate;  /* sending rate, in millionths of 2^20 bit/s */
	u64 worth; /* reward of the rate: its 0.9th power */
	u32 sent;
	u32 lost;
	u32 lost_share; /* millionths */
	s32 slope;      /* hundredths */
	s64 utility;    /* millionths */
};

struct vivudt_probe {
	struct vivudt_result result;
	u64 rate;
	bool is_up;
	bool is_known;
};

/* One of the two intervals that MOVING compares. */
struct vivudt_side {
	struct vivudt_result result;
	u64 rate;
	u32 interval;
	bool is_known;
};

enum vivudt_mode { START, SEARCHING, PROBING, MOVING, HIBERNATING };

struct vivudt {
	struct vivudt_interval intervals[INTERVALS];
	struct vivudt_probe probes[PROBES];
	struct vivudt_side reference, target;
	struct minmax_filter least_rtt;
	u64 rate;
	u64 base;
	s64 last_utility; /* of the previous interval in START */
	s64 last_change;
	s64 moved;        /* difference of target and reference rate */
	u32 oldest;       /* index of the oldest interval that is not over */
	u32 sending;      /* index of the interval that is being sent */
	u32 seen;         /* index of the latest interval with an ACK */
	u32 awaited;      /* index of the interval that START waits for */
	u32 first_probe;
	u32 stopped;      /* interval that was being sent when more than half was lost */
	u32 immune;       /* index of the last interval that is exempt from deadlines */
	u32 rtt_us;       /* length of intervals: mean RTT of the last one */
	u32 last_rtt_us;  /* the same, regardless of deadlines missed since */
	u32 amplifier;    /* halves */
	u32 boundary;
	u8 mode;          /* enum vivudt_mode */
	u8 probe_count;
	u8 probes_begun;
	u8 swing;         /* steps of one sign before the amplifier grows */
	u8 trend;         /* steps of one sign; above 0 one pair of probes is enough */
	u8 start_losses;
	u8 depth;         /* depth of hibernation: each level halves the rate */
	bool awaits;
	bool has_target;
	bool has_stopped;
	bool has_immune;
	bool has_rtt;
	bool has_doubted;
};
SKYHOP_STATE(struct vivudt);

static struct vivudt_interval *interval(struct vivudt *my, u32 index)
{
	return &my->intervals[index & (INTERVALS - 1)];
}

static u32 packet_bytes(struct sock *sk)
{
	return tcp_sk(sk)->mss_cache + HEADERS;
}

/* ---- Rates ---- */

static void pace(struct sock *sk, u64 rate)
{
	pacing_set_rate(sk, max_u64(rate / 8 * tcp_sk(sk)->mss_cache / packet_bytes(sk), 1));
}

/* Distance of a probe from the rate. */
static u64 probe_distance(const struct vivudt *my)
{
	return max_u64(my->base * PROBE_PERCENT / 100, LEAST_CHANGE);
}

static u64 least_rate(const struct vivudt *my)
{
	u64 distance = probe_distance(my);

	if (my->mode == START)
		return LEAST_START_RATE;
	return LEAST_RATE - LEAST_RATE * min_u64(distance, my->base) / max_u64(my->base, 1);
}

static void set_rate(struct sock *sk, struct vivudt *my, u64 rate)
{
	my->rate = min_u64(max_u64(rate, least_rate(my)), MOST_RATE);
	pace(sk, my->rate);
}

static u64 changed(u64 rate, s64 by)
{
	return by < 0 ? rate - min_u64(pcc_abs(by), rate) : min_u64(rate + (u64)by, MOST_RATE);
}

static void search(struct vivudt *my)
{
	my->mode = SEARCHING;
}

/* ---- Start of an interval ---- */

/* Prepare pairs of a higher and a lower rate, in random order. */
static void prepare_probes(struct sock *sk, struct vivudt *my)
{
	u64 distance = probe_distance(my);

	my->probe_count = my->trend ? 2 : PROBES;
	for (u32 i = 0; i < PROBES; i += 2) {
		bool is_up = skyhop_random(sk, 2);

		for (u32 j = i; j < i + 2; j++) {
			struct vivudt_probe *probe = &my->probes[j & (PROBES - 1)];

			probe->is_up = is_up;
			probe->is_known = false;
			probe->rate = is_up ? my->base + distance : my->base - min_u64(distance, my->base);
			is_up = !is_up;
		}
	}
	my->first_probe = my->sending;
	my->probes_begun = 0;
}

static void begin_search(struct sock *sk, struct vivudt *my)
{
	my->base = max_u64(my->base, LEAST_RATE);
	my->mode = PROBING;
	prepare_probes(sk, my);
}

/* Send the probes one after the other and then, until their results arrive, the rate between them. */
static void begin_probe(struct sock *sk, struct vivudt *my)
{
	if (my->probes_begun < my->probe_count) {
		set_rate(sk, my, my->probes[my->probes_begun & (PROBES - 1)].rate);
		my->probes_begun++;
		return;
	}
	set_rate(sk, my, my->base);
	my->reference.interval = my->sending;
	my->reference.rate = my->base;
}

static void begin_move(struct sock *sk, struct vivudt *my)
{
	set_rate(sk, my, my->target.rate);
	my->base = my->target.rate;
	if (!my->has_target) {
		my->has_target = true;
		my->target.interval = my->sending;
	}
	if (my->base >= LEAST_RATE)
		return;
	my->amplifier = 0;
	my->boundary = 0;
	my->has_target = false;
	begin_search(sk, my);
	begin_probe(sk, my);
}

static u64 hibernation_rate(const struct vivudt *my)
{
	return HIBERNATION_RATE >> min_u32(my->depth, HIBERNATION_DEPTHS);
}

static void choose_rate(struct sock *sk, struct vivudt *my)
{
	switch (my->mode) {
	case START:
		if (my->awaits)
			return;
		my->awaits = true;
		my->awaited = my->sending;
		my->base = min_u64(2 * my->rate, MOST_RATE);
		set_rate(sk, my, my->base);
		return;
	case SEARCHING:
		begin_search(sk, my);
		begin_probe(sk, my);
		return;
	case PROBING:
		begin_probe(sk, my);
		return;
	case MOVING:
		begin_move(sk, my);
		return;
	default:
		pace(sk, hibernation_rate(my));
	}
}

/* Number of packets of an interval: a round trip at its rate. */
static u32 interval_length(struct sock *sk, const struct vivudt *my)
{
	u64 us = my->rtt_us > MOST_INTERVAL_US ? LONG_INTERVAL_US : my->rtt_us;

	if (my->mode == HIBERNATING)
		return 1;
	return clamp_u32((u32)(us * my->rate / (8 * MBIT) / packet_bytes(sk)), LEAST_PACKETS, MOST_PACKETS);
}

/* Bits of so many packets, limited so that a product with ns fits 64 bits. */
static u64 bits(struct sock *sk, u32 packets)
{
	return min_u64((u64)packets * packet_bytes(sk) * 8, MOST_BITS);
}

static u64 sending_ns(struct sock *sk, u64 rate, u32 packets)
{
	return bits(sk, packets) * NSEC_PER_SEC / max_u64(rate, 1);
}

/* Time allowed for ACKs in addition to the time that sending takes. */
static u32 answer_us(const struct vivudt *my)
{
	u32 least_us = my->has_rtt ? my->least_rtt.best.v : my->last_rtt_us;

	return clamp_u32(least_us / 10 * DEADLINE_TENTHS, LEAST_DEADLINE_US, MOST_DEADLINE_US);
}

static u64 pacing_now_ns(const struct tcp_sock *tp)
{
	return max_u64(tp->tcp_wstamp_ns, tp->tcp_mstamp * NSEC_PER_USEC);
}

static void begin_interval(struct sock *sk, struct vivudt *my)
{
	const struct tcp_sock *tp = tcp_sk(sk);
	struct vivudt_interval *now = interval(my, my->sending);

	choose_rate(sk, my);
	now->rate = my->mode == HIBERNATING ? hibernation_rate(my) : my->rate;
	now->began_ns = pacing_now_ns(tp);
	now->length = interval_length(sk, my);
	now->deadline_us = tp->tcp_mstamp + sending_ns(sk, now->rate, now->length) / NSEC_PER_USEC + answer_us(my);
	now->at = 0;
	now->at_squared = 0;
	now->rtt = 0;
	now->at_rtt = 0;
	now->samples = 0;
	now->first_delivered = tp->delivered;
	now->first_seq = tp->snd_nxt;
	now->sent_before = tp->data_segs_out;
	now->sent = 0;
	now->acked = 0;
}

/* Begin the next interval once the current one has its packets. If too many are tracked, the current one continues. */
static void check_sent(struct sock *sk, struct vivudt *my)
{
	struct vivudt_interval *now = interval(my, my->sending);
	const struct tcp_sock *tp = tcp_sk(sk);

	if (tp->data_segs_out - now->sent_before < now->length || my->sending - my->oldest >= INTERVALS - 1)
		return;
	now->sent = tp->data_segs_out - now->sent_before;
	now->took_ns = pacing_now_ns(tp) - now->began_ns;
	my->sending++;
	begin_interval(sk, my);
}

/* ---- Processing of ACKs ---- */

/* Interval during which tp->delivered had the value `delivered`. */
static u32 interval_of(struct vivudt *my, u32 delivered)
{
	u32 index = my->sending;

	for (u32 i = 0; i < INTERVALS; i++) {
		if (index == my->oldest || !before(delivered, interval(my, index)->first_delivered))
			break;
		index--;
	}
	return index;
}

static void take_rtt(const struct tcp_sock *tp, struct vivudt_interval *of, u32 rtt_us)
{
	u64 left_us = tp->tcp_mstamp - min_u64(rtt_us, tp->tcp_mstamp);
	u64 at;
	s64 above_us;

	if (of->samples >= MOST_SAMPLES)
		return;
	if (!of->samples) {
		of->origin_us = left_us;
		of->origin_rtt_us = rtt_us;
	}
	at = left_us - min_u64(of->origin_us, left_us);
	at = min_u64(at >> AT_SHIFT, MOST_AT);
	above_us = pcc_bounded((s64)rtt_us - of->origin_rtt_us, MOST_RTT_US);
	of->samples++;
	of->at += at;
	of->at_squared += at * at;
	of->rtt += above_us;
	of->at_rtt += (s64)at * above_us;
}

/* Attribute acknowledged packets: an ACK of several may cover packets of the previous interval. */
static void take_packets(struct sock *sk, struct vivudt *my, u32 index, const struct rate_sample *rs)
{
	struct vivudt_interval *of = interval(my, index);
	u32 acked = rs->acked_sacked;
	u32 own = acked;

	if (index != my->oldest && after(rs->last_end_seq, of->first_seq)) {
		u32 mss = max_u32(tcp_sk(sk)->mss_cache, 1);

		own = min_u32((rs->last_end_seq - of->first_seq + mss - 1) / mss, acked);
		interval(my, index - 1)->acked += acked - own;
	}
	of->acked += own;
}

static void take_ack(struct sock *sk, struct vivudt *my, const struct rate_sample *rs)
{
	u32 index = interval_of(my, rs->prior_delivered);
	struct vivudt_interval *of = interval(my, index);

	/* The packet belongs to an interval that is over. */
	if (before(rs->prior_delivered, of->first_delivered))
		return;
	take_packets(sk, my, index, rs);
	if (rs->rtt_us > 0)
		take_rtt(tcp_sk(sk), of, (u32)min_u64((u64)rs->rtt_us, 1U << 30));
	if (after(index, my->seen))
		my->seen = index;
}

/* ---- Utility of a rate ---- */

/* Slope of the regression line of RTTs over departures, in hundredths, rounded towards zero to an even number. */
static s32 rtt_slope(const struct vivudt_interval *of)
{
	s64 together = of->samples * of->at_rtt - (s64)of->at * of->rtt;
	u64 spread = of->samples * of->at_squared - of->at * of->at;
	u64 slope;

	spread = (spread << AT_SHIFT) / 100;
	if (!spread)
		return 0;
	slope = min_u64(pcc_abs(together) / spread, MOST_SLOPE) & ~1ULL;
	return together < 0 ? -(s32)slope : (s32)slope;
}

static u32 share(u64 lost, u64 sent)
{
	return (u32)(lost * MBIT / max_u64(sent, 1));
}

static s64 utility(struct sock *sk, const struct vivudt_result *of, u32 lost_share)
{
	u64 weight = lost_share <= MILD_LOSS ? skyhop_param(sk, mild_loss) : skyhop_param(sk, loss);
	/* in millionths: a hundredth is 10,000 of them */
	s64 penalty = (s64)(weight * lost_share / VIVUDT_ONE) +
		      of->slope * (s64)(skyhop_param(sk, latency) * (MBIT / 100));

	return (s64)of->worth - pcc_ratio(penalty, of->rate >> 6, MBIT >> 6);
}

/* Ignore small losses and slopes in START. As in the program, the number of losses to ignore stays as it is until
 * one interval has more. */
static void overlook(struct vivudt *my, struct vivudt_result *result)
{
	bool is_slight = result->slope > -START_SLOPE && result->slope < START_SLOPE;

	if (result->lost <= my->start_losses) {
		result->lost = 0;
	} else {
		is_slight = is_slight && my->start_losses;
		result->lost -= my->start_losses;
		my->start_losses = 0;
	}
	if (is_slight)
		result->slope = 0;
}

static void measure(struct sock *sk, struct vivudt *my, const struct vivudt_interval *of,
		    struct vivudt_result *result)
{
	u64 exponent = skyhop_param(sk, exponent) * PCC_ONE / VIVUDT_ONE;
	u64 took_ns = max_u64(max_u64(of->took_ns, sending_ns(sk, of->rate, of->sent)), 1);
	u64 rate = bits(sk, of->sent) * NSEC_PER_SEC / took_ns;

	result->rate = min_u64(rate, 2 * MOST_RATE) * (MBIT / 64) >> (20 - 6);
	result->worth = pcc_power(result->rate, exponent, MBIT);
	result->sent = of->sent;
	result->lost = of->sent - min_u32(of->acked, of->sent);
	result->slope = rtt_slope(of);
	if (my->mode == START)
		overlook(my, result);
	result->lost_share = share(result->lost, result->sent);
	result->utility = utility(sk, result, result->lost_share);
}

/* ---- Steps ---- */

/* Factor of a step, in halves. */
static u64 amplification(u32 halves)
{
	if (halves < 2 * 3)
		return halves + 2;
	if (halves < 2 * 6)
		return 2 * halves - 2 * 2;
	if (halves < 2 * 9)
		return 4 * halves - 2 * 14;
	return 8 * halves - 2 * 50;
}

static void count_step(struct vivudt *my, bool is_turn)
{
	if (is_turn) {
		my->trend = 0;
		return;
	}
	my->trend = (u8)min_u32(my->trend + 1U, 100);
	if (my->swing)
		my->swing--;
	else
		my->amplifier = min_u32(my->amplifier + (my->amplifier > 2 * 3 ? 1 : 2), MOST_AMPLIFIER);
}

static u64 within_bound(struct sock *sk, struct vivudt *my, u64 by)
{
	u64 bound = skyhop_param(sk, bound) + skyhop_param(sk, bound_growth) * my->boundary;
	u64 most = my->base * bound / VIVUDT_ONE;

	if (by > most) {
		my->boundary = min_u32(my->boundary + 1, MOST_BOUNDARY);
		return most;
	}
	if (my->boundary)
		my->boundary--;
	return by;
}

/* Change of the rate, for a gain of utility `gained` over a difference of rate `further`. */
static s64 decide(struct sock *sk, struct vivudt *my, s64 gained, s64 further)
{
	bool is_up = (gained > 0) == (further > 0);
	bool is_turn = gained && my->last_change && is_up != (my->last_change > 0);
	u64 by = pcc_abs(pcc_bounded(gained, MOST_UTILITY)) * MBIT / max_u64(pcc_abs(further), 1);

	if (is_turn) {
		my->amplifier = 0;
		my->boundary = 0;
		my->swing = (u8)min_u32(my->swing + 1U, MOST_SWING);
	}
	by = min_u64(by, MOST_UTILITY) * amplification(my->amplifier) / 2;
	if (gained && my->last_change)
		count_step(my, is_turn);
	by = within_bound(sk, my, by);
	if (is_turn)
		my->boundary = 0;
	if (gained)
		by = max_u64(by, LEAST_CHANGE);
	my->last_change = is_up ? (s64)by : -(s64)by;
	return my->last_change;
}

/* Search again with one pair, after probes that decided nothing. */
static void search_again(struct vivudt *my)
{
	my->trend = 2;
	my->last_change = 0;
	my->reference.is_known = false;
	search(my);
}

static bool is_large(const struct vivudt *my, s64 change)
{
	return change > (s64)(my->base * MOVE_PERCENT / 100);
}

static void step_and_search(struct sock *sk, struct vivudt *my, s64 change)
{
	search(my);
	my->base = changed(my->base, change);
	set_rate(sk, my, my->base);
}

/* ---- Decisions ---- */

static void decide_start(struct vivudt *my, u32 index, const struct vivudt_result *result)
{
	if (!my->awaits || index != my->awaited)
		return;
	my->awaits = false;
	if (my->last_utility > result->utility) {
		my->base /= 2;
		search(my);
	}
	my->last_utility = result->utility;
}

/* Give all probes the same loss share if it is at most one per cent, because it then does not depend on the rate. */
static void share_losses(struct sock *sk, struct vivudt *my, u32 lost_share)
{
	if (lost_share > ALIKE_LOSS)
		return;
	for (u32 i = 0; i < PROBES; i++)
		my->probes[i].result.utility = utility(sk, &my->probes[i].result, lost_share);
}

/* Number of pairs in favour of a higher rate, minus those in favour of a lower one. */
static s32 vote(const struct vivudt *my)
{
	s32 votes = 0;

	for (u32 i = 0; i < PROBES; i += 2) {
		const struct vivudt_probe *first = &my->probes[i], *second = &my->probes[i + 1];

		if (i >= my->probe_count || first->result.utility == second->result.utility)
			continue;
		votes += (first->result.utility > second->result.utility) == first->is_up ? 1 : -1;
	}
	return votes;
}

/* Whether to doubt the result: less loss at a higher rate, in spite of heavy loss, is believed the second time. */
static bool is_doubtful(struct vivudt *my, s32 votes, u32 lost_up, u32 lost_down, u32 lost_share)
{
	if (lost_down <= lost_up + FEW_LOSSES || votes <= 0 || !lost_up || lost_share < HEAVY_LOSS) {
		my->has_doubted = false;
		return false;
	}
	my->has_doubted = !my->has_doubted;
	if (!my->has_doubted)
		my->trend = 2;
	return my->has_doubted;
}

/* Change of the rate by the sums over all pairs of probes. */
static s64 decide_by_probes(struct sock *sk, struct vivudt *my)
{
	s64 gained = 0, further = 0;

	for (u32 i = 0; i < PROBES; i++) {
		const struct vivudt_probe *probe = &my->probes[i];

		if (i >= my->probe_count)
			break;
		gained += probe->is_up ? probe->result.utility : -probe->result.utility;
		further += probe->is_up ? (s64)probe->rate : -(s64)probe->rate;
	}
	return decide(sk, my, gained, further);
}

static void decide_probing(struct sock *sk, struct vivudt *my)
{
	u32 sent = 0, lost_up = 0, lost_down = 0, lost_share;
	s64 change;
	s32 votes;

	for (u32 i = 0; i < PROBES; i++) {
		const struct vivudt_probe *probe = &my->probes[i];

		if (i >= my->probe_count)
			break;
		if (!probe->is_known)
			return;
		sent += probe->result.sent;
		lost_up += probe->is_up ? probe->result.lost : 0;
		lost_down += probe->is_up ? 0 : probe->result.lost;
	}
	lost_share = share((u64)lost_up + lost_down, sent);
	share_losses(sk, my, lost_share);
	votes = vote(my);
	if (is_doubtful(my, votes, lost_up, lost_down, lost_share) || !votes) {
		search_again(my);
		return;
	}
	change = decide_by_probes(sk, my);
	if (!is_large(my, change)) {
		step_and_search(sk, my, change);
		return;
	}
	my->mode = MOVING;
	my->moved = change;
	my->has_target = false;
	my->target.is_known = false;
	my->target.rate = changed(my->reference.rate, change);
}

/* Whether a higher rate had clearly less loss, or a lower rate clearly more. */
static bool is_second_guess(const struct vivudt *my)
{
	const struct vivudt_result *from = &my->reference.result, *to = &my->target.result;
	u32 apart = from->lost > to->lost ? from->lost - to->lost : to->lost - from->lost;

	if (from->lost_share == to->lost_share || my->reference.rate == my->target.rate ||
	    (my->target.rate > my->reference.rate) == (to->lost_share > from->lost_share))
		return false;
	/* The program adds the target's losses here, not its packets sent. */
	return apart > FEW_LOSSES ||
	       share((u64)from->lost + to->lost, (u64)from->sent + to->lost) >= HEAVY_LOSS;
}

static void end_move(struct vivudt *my)
{
	my->has_target = false;
	my->reference.is_known = false;
	my->target.is_known = false;
}

static void decide_moving(struct sock *sk, struct vivudt *my)
{
	struct vivudt_side *from = &my->reference, *to = &my->target;
	s64 change;

	if (!from->is_known || !to->is_known)
		return;
	change = decide(sk, my, to->result.utility - from->result.utility, (s64)to->rate - (s64)from->rate);
	if (is_second_guess(my)) {
		my->has_doubted = true;
		end_move(my);
		search_again(my);
	} else if (!change || (change > 0) != (my->moved > 0)) {
		end_move(my);
		step_and_search(sk, my, change);
	} else if (!is_large(my, change)) {
		end_move(my);
		step_and_search(sk, my, change);
		my->trend = 2;
	} else {
		*from = *to;
		my->moved = change;
		to->interval = my->sending + 1;
		to->is_known = false;
		to->rate = changed(from->rate, change);
	}
}

static void wake(struct sock *sk, struct vivudt *my)
{
	if (my->rtt_us > WAKING_RTT_US)
		return;
	my->base = LEAST_RATE + MBIT / 10;
	my->mode = SEARCHING;
	set_rate(sk, my, my->base);
	my->depth = 0;
	my->has_immune = true;
	my->immune = my->sending;
}

/* Halve the rate after losing more than half, but only once for the intervals already sent. */
static void stop(struct sock *sk, struct vivudt *my, u32 index)
{
	if (my->has_stopped && index != my->stopped)
		return;
	my->has_stopped = true;
	my->stopped = my->sending;
	my->has_target = false;
	my->base = max_u64(my->base / 2, LEAST_RATE);
	search(my);
	set_rate(sk, my, my->base);
}

static void remember(struct vivudt *my, u32 index, const struct vivudt_result *result)
{
	u32 probe = index - my->first_probe;

	if (index == my->reference.interval) {
		my->reference.result = *result;
		my->reference.is_known = true;
	}
	if (my->mode == PROBING && probe < my->probe_count) {
		my->probes[probe & (PROBES - 1)].result = *result;
		my->probes[probe & (PROBES - 1)].is_known = true;
	}
	if (my->mode == MOVING && my->has_target && index == my->target.interval) {
		my->target.result = *result;
		my->target.is_known = true;
	}
}

static void on_result(struct sock *sk, struct vivudt *my, u32 index, const struct vivudt_result *result)
{
	if (result->lost_share > STOP_LOSS)
		stop(sk, my, index);
	else
		my->has_stopped = false;
	remember(my, index, result);
	if (my->mode == START)
		decide_start(my, index, result);
	else if (my->mode == PROBING)
		decide_probing(sk, my);
	else if (my->mode == MOVING)
		decide_moving(sk, my);
	else if (my->mode == HIBERNATING)
		wake(sk, my);
}

static void take_mean_rtt(struct vivudt *my, const struct vivudt_interval *of)
{
	s64 mean_us;

	if (!of->samples)
		return;
	mean_us = of->origin_rtt_us + pcc_ratio(of->rtt, 1, of->samples);
	my->rtt_us = mean_us > 0 ? (u32)mean_us : 1;
	my->last_rtt_us = my->rtt_us;
	if (my->has_rtt)
		minmax_running_min(&my->least_rtt, DEADLINE_RTTS, my->oldest, my->rtt_us);
	else
		minmax_restart(&my->least_rtt, my->oldest, my->rtt_us);
	my->has_rtt = true;
}

/* Evaluate the oldest interval once all of it, or anything later, was acknowledged; one interval per call. */
static void check_received(struct sock *sk, struct vivudt *my)
{
	struct vivudt_interval *of = interval(my, my->oldest);
	struct vivudt_result result = {};

	if (my->oldest == my->sending || (of->acked < of->sent && !after(my->seen, my->oldest)))
		return;
	take_mean_rtt(my, of);
	measure(sk, my, of, &result);
	on_result(sk, my, my->oldest, &result);
	my->oldest++;
	if (before(my->seen, my->oldest))
		my->seen = my->oldest;
}

/* ---- Deadlines ---- */

static void miss_deadline(struct sock *sk, struct vivudt *my, u32 answer_took_us)
{
	my->base /= 2;
	my->has_target = false;
	my->rtt_us = answer_took_us;
	my->has_rtt = false;
	if (my->base < LEAST_RATE + HIBERNATION_MARGIN) {
		my->mode = HIBERNATING;
		pace(sk, hibernation_rate(my));
		my->depth = (u8)min_u32(my->depth + 1U, HIBERNATION_DEPTHS);
	} else {
		search(my);
		set_rate(sk, my, my->base);
	}
	my->sending++;
	my->oldest = my->sending;
	my->seen = my->sending;
	begin_interval(sk, my);
}

static void check_deadline(struct sock *sk, struct vivudt *my)
{
	const struct vivudt_interval *of = interval(my, my->oldest);
	u64 now_us = tcp_sk(sk)->tcp_mstamp;

	if (!skyhop_param(sk, deadline) || now_us <= of->deadline_us)
		return;
	if (my->has_immune && !after(my->oldest, my->immune))
		return;
	my->has_immune = false;
	miss_deadline(sk, my, answer_us(my));
}

/* ---- The hooks ---- */

static void open_window(struct sock *sk)
{
	tcp_sk(sk)->snd_cwnd = max_u32(min_u32((u32)skyhop_param(sk, window), tcp_sk(sk)->snd_cwnd_clamp), 1);
}

SKYHOP_HOOK(void, vivudt_init, struct sock *sk)
{
	struct vivudt *my = skyhop_state_create(sk);

	if (!my)
		return;
	my->mode = START;
	my->rate = FIRST_RATE;
	my->base = FIRST_RATE;
	my->last_utility = -MOST_UTILITY;
	my->start_losses = START_LOSSES;
	my->rtt_us = FIRST_RTT_US;
	my->last_rtt_us = FIRST_RTT_US;
	tcp_sk(sk)->snd_ssthresh = TCP_INFINITE_SSTHRESH;
	pacing_request(sk);
	open_window(sk);
	begin_interval(sk, my);
}

SKYHOP_HOOK(void, vivudt_cong_control, struct sock *sk, u32 ack, int flag, const struct rate_sample *rs)
{
	struct vivudt *my = skyhop_state(sk);

	(void)ack;
	(void)flag;
	if (!my)
		return;
	open_window(sk);
	check_deadline(sk, my);
	if (!rs->acked_sacked)
		return;
	/* In the program an interval ends with its last packet, before ACKs are processed. */
	check_sent(sk, my);
	take_ack(sk, my, rs);
	check_received(sk, my);
}

/* The program has no timeouts: lost packets are retransmitted at the same rate. */
SKYHOP_HOOK(void, vivudt_set_state, struct sock *sk, u8 new_state)
{
	struct vivudt *my = skyhop_state(sk);

	if (!my || new_state != TCP_CA_Loss)
		return;
	open_window(sk);
	check_deadline(sk, my);
}

/* Vivace has no threshold, and no window to restore. */
SKYHOP_HOOK(u32, vivudt_ssthresh, struct sock *sk)
{
	(void)sk;
	return TCP_INFINITE_SSTHRESH;
}

SKYHOP_HOOK(u32, vivudt_undo_cwnd, struct sock *sk)
{
	return tcp_sk(sk)->snd_cwnd;
}

/* As for BBR: one window in flight, one for recovery, and one for the next round. */
SKYHOP_HOOK(u32, vivudt_sndbuf_expand, struct sock *sk)
{
	(void)sk;
	return 3;
}

SKYHOP_MODULE(vivudt, "PCC Vivace, the authors' program for UDT, latency-sensitive",
	      .flags = TCP_CONG_NON_RESTRICTED,
	      .init = SKYHOP_FN(vivudt_init),
	      .ssthresh = SKYHOP_FN(vivudt_ssthresh),
	      .cong_control = SKYHOP_FN(vivudt_cong_control),
	      .set_state = SKYHOP_FN(vivudt_set_state),
	      .undo_cwnd = SKYHOP_FN(vivudt_undo_cwnd),
	      .sndbuf_expand = SKYHOP_FN(vivudt_sndbuf_expand));
