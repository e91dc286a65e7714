/* SPDX-License-Identifier: MIT OR GPL-2.0 */
/* The C compiler's view of skyhop_cc.h, for the tests that compare Rust's with it. */
#include "skyhop_cc.h"

struct skyhop_layout_row {
	const char *name;
	u64 offset;
	u64 size;
};

#define WHOLE(type) { #type, 0, sizeof(struct type) }
#define FIELD(type, field) \
	{ #type "." #field, offsetof(struct type, field), sizeof(((struct type *)0)->field) }

extern const struct skyhop_layout_row skyhop_layout[];
extern const u64 skyhop_layout_len;
u32 skyhop_layout_bits(struct sock *sk);
u64 skyhop_host_handover_at_ns(struct sock *sk);
u32 skyhop_host_jiffies(struct sock *sk);
u32 skyhop_host_random(struct sock *sk, u32 n);

const struct skyhop_layout_row skyhop_layout[] = {
	WHOLE(minmax),
	FIELD(minmax, s),
	WHOLE(minmax_sample),
	FIELD(minmax_sample, t),
	FIELD(minmax_sample, v),
	WHOLE(sock),
	FIELD(sock, sk_pacing_rate),
	FIELD(sock, sk_max_pacing_rate),
	FIELD(sock, sk_pacing_status),
	FIELD(sock, sk_gso_max_size),
	FIELD(sock, sk_sndbuf),
	FIELD(sock, sk_pacing_shift),
	WHOLE(inet_sock),
	FIELD(inet_sock, sk),
	WHOLE(inet_connection_sock),
	FIELD(inet_connection_sock, icsk_inet),
	FIELD(inet_connection_sock, icsk_rto),
	FIELD(inet_connection_sock, icsk_retransmits),
	FIELD(inet_connection_sock, icsk_backoff),
	FIELD(inet_connection_sock, icsk_ca_priv),
	WHOLE(tcp_sock),
	FIELD(tcp_sock, inet_conn),
	FIELD(tcp_sock, tcp_clock_cache),
	FIELD(tcp_sock, tcp_mstamp),
	FIELD(tcp_sock, tcp_wstamp_ns),
	FIELD(tcp_sock, delivered_mstamp),
	FIELD(tcp_sock, first_tx_mstamp),
	FIELD(tcp_sock, bytes_acked),
	FIELD(tcp_sock, bytes_sent),
	FIELD(tcp_sock, snd_una),
	FIELD(tcp_sock, snd_nxt),
	FIELD(tcp_sock, write_seq),
	FIELD(tcp_sock, high_seq),
	FIELD(tcp_sock, mss_cache),
	FIELD(tcp_sock, snd_wnd),
	FIELD(tcp_sock, snd_cwnd),
	FIELD(tcp_sock, snd_cwnd_cnt),
	FIELD(tcp_sock, snd_cwnd_clamp),
	FIELD(tcp_sock, snd_cwnd_stamp),
	FIELD(tcp_sock, snd_ssthresh),
	FIELD(tcp_sock, prior_cwnd),
	FIELD(tcp_sock, prior_ssthresh),
	FIELD(tcp_sock, srtt_us),
	FIELD(tcp_sock, mdev_us),
	FIELD(tcp_sock, mdev_max_us),
	FIELD(tcp_sock, rttvar_us),
	FIELD(tcp_sock, rtt_min),
	FIELD(tcp_sock, packets_out),
	FIELD(tcp_sock, retrans_out),
	FIELD(tcp_sock, sacked_out),
	FIELD(tcp_sock, lost_out),
	FIELD(tcp_sock, max_packets_out),
	FIELD(tcp_sock, cwnd_usage_seq),
	FIELD(tcp_sock, delivered),
	FIELD(tcp_sock, delivered_ce),
	FIELD(tcp_sock, lost),
	FIELD(tcp_sock, app_limited),
	FIELD(tcp_sock, rate_delivered),
	FIELD(tcp_sock, rate_interval_us),
	FIELD(tcp_sock, total_retrans),
	FIELD(tcp_sock, reordering),
	FIELD(tcp_sock, undo_marker),
	FIELD(tcp_sock, undo_retrans),
	FIELD(tcp_sock, lsndtime),
	WHOLE(ack_sample),
	FIELD(ack_sample, pkts_acked),
	FIELD(ack_sample, rtt_us),
	FIELD(ack_sample, in_flight),
	WHOLE(rate_sample),
	FIELD(rate_sample, prior_mstamp),
	FIELD(rate_sample, prior_delivered),
	FIELD(rate_sample, prior_delivered_ce),
	FIELD(rate_sample, delivered),
	FIELD(rate_sample, delivered_ce),
	FIELD(rate_sample, interval_us),
	FIELD(rate_sample, snd_interval_us),
	FIELD(rate_sample, rcv_interval_us),
	FIELD(rate_sample, rtt_us),
	FIELD(rate_sample, losses),
	FIELD(rate_sample, acked_sacked),
	FIELD(rate_sample, prior_in_flight),
	FIELD(rate_sample, last_end_seq),
	FIELD(rate_sample, is_app_limited),
	FIELD(rate_sample, is_retrans),
	FIELD(rate_sample, is_ack_delayed),
	WHOLE(skyhop_handover),
	FIELD(skyhop_handover, at_ns),
	FIELD(skyhop_handover, outage_ns),
	FIELD(skyhop_handover, error_ns),
	FIELD(skyhop_handover, kind),
	FIELD(skyhop_handover, valid),
	WHOLE(skyhop_phase),
	FIELD(skyhop_phase, begin_ns),
	FIELD(skyhop_phase, end_ns),
	FIELD(skyhop_phase, kind),
	WHOLE(skyhop_host),
	FIELD(skyhop_host, handover),
	FIELD(skyhop_host, told),
	FIELD(skyhop_host, told_len),
	FIELD(skyhop_host, hz),
};

const u64 skyhop_layout_len = sizeof(skyhop_layout) / sizeof(skyhop_layout[0]);

/* The bit fields, which have no offset: ca_state, and is_cwnd_limited at bit 8. */
u32 skyhop_layout_bits(struct sock *sk)
{
	return inet_csk(sk)->icsk_ca_state | (u32)tcp_sk(sk)->is_cwnd_limited << 8;
}

/* What a module reads through the header; no announcement: 0. */
u64 skyhop_host_handover_at_ns(struct sock *sk)
{
	struct skyhop_handover handover;

	return skyhop_handover(sk, &handover) ? handover.at_ns : 0;
}

u32 skyhop_host_jiffies(struct sock *sk)
{
	return skyhop_jiffies(sk);
}

u32 skyhop_host_random(struct sock *sk, u32 n)
{
	return skyhop_random(sk, n);
}
