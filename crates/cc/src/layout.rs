//! Rust's mirrors against the C compiler's layout.

use skyhop_model::CongestionState;
use std::ffi::{CStr, c_char};
use std::mem::offset_of;

use crate::ffi::Host;
use crate::sock::*;

#[repr(C)]
struct Row {
    name: *const c_char,
    offset: u64,
    size: u64,
}

unsafe extern "C" {
    static skyhop_layout: [Row; 0];
    static skyhop_layout_len: u64;
    fn skyhop_layout_bits(sk: *mut TcpSock) -> u32;
}

type Layout = Vec<(String, u64, u64)>;

fn layout_of_c() -> Layout {
    // SAFETY: layout.c defines an array of that many rows with literal names.
    unsafe {
        let rows = (&raw const skyhop_layout).cast::<Row>();
        std::slice::from_raw_parts(rows, skyhop_layout_len as usize)
            .iter()
            .map(|row| {
                (CStr::from_ptr(row.name).to_str().unwrap().to_owned(), row.offset, row.size)
            })
            .collect()
    }
}

fn size_of_field<S, F>(_: impl Fn(&S) -> &F) -> usize {
    size_of::<F>()
}

macro_rules! layout {
    ($rust:ty, $c:literal, $($field:ident),+) => {
        vec![
            ($c.to_owned(), 0, size_of::<$rust>() as u64),
            $((
                concat!($c, ".", stringify!($field)).to_owned(),
                offset_of!($rust, $field) as u64,
                size_of_field(|whole: &$rust| &whole.$field) as u64,
            )),+
        ]
    };
}

#[test]
fn the_mirrors_have_the_layout_of_c() {
    let ours: Layout = [
        layout!(MinMax, "minmax", s),
        layout!(MinMaxSample, "minmax_sample", t, v),
        layout!(
            Sock,
            "sock",
            sk_pacing_rate,
            sk_max_pacing_rate,
            sk_pacing_status,
            sk_gso_max_size,
            sk_sndbuf,
            sk_pacing_shift
        ),
        layout!(InetSock, "inet_sock", sk),
        layout!(
            InetConnectionSock,
            "inet_connection_sock",
            icsk_inet,
            icsk_rto,
            icsk_retransmits,
            icsk_backoff,
            icsk_ca_priv
        ),
        layout!(
            TcpSock,
            "tcp_sock",
            inet_conn,
            tcp_clock_cache,
            tcp_mstamp,
            tcp_wstamp_ns,
            delivered_mstamp,
            first_tx_mstamp,
            bytes_acked,
            bytes_sent,
            snd_una,
            snd_nxt,
            write_seq,
            high_seq,
            mss_cache,
            snd_wnd,
            snd_cwnd,
            snd_cwnd_cnt,
            snd_cwnd_clamp,
            snd_cwnd_stamp,
            snd_ssthresh,
            prior_cwnd,
            prior_ssthresh,
            srtt_us,
            mdev_us,
            mdev_max_us,
            rttvar_us,
            rtt_min,
            packets_out,
            retrans_out,
            sacked_out,
            lost_out,
            max_packets_out,
            cwnd_usage_seq,
            delivered,
            delivered_ce,
            lost,
            app_limited,
            rate_delivered,
            rate_interval_us,
            total_retrans,
            reordering,
            undo_marker,
            undo_retrans,
            lsndtime
        ),
        layout!(AckSample, "ack_sample", pkts_acked, rtt_us, in_flight),
        layout!(
            RateSample,
            "rate_sample",
            prior_mstamp,
            prior_delivered,
            prior_delivered_ce,
            delivered,
            delivered_ce,
            interval_us,
            snd_interval_us,
            rcv_interval_us,
            rtt_us,
            losses,
            acked_sacked,
            prior_in_flight,
            last_end_seq,
            is_app_limited,
            is_retrans,
            is_ack_delayed
        ),
        layout!(Handover, "skyhop_handover", at_ns, outage_ns, error_ns, kind, valid),
        layout!(Phase, "skyhop_phase", begin_ns, end_ns, kind),
        layout!(Host, "skyhop_host", handover, told, told_len, hz),
    ]
    .concat();
    assert_eq!(ours, layout_of_c());
}

#[test]
fn bit_fields_lie_where_c_has_them() {
    for state in [
        CongestionState::Open,
        CongestionState::Disorder,
        CongestionState::Cwr,
        CongestionState::Recovery,
        CongestionState::Loss,
    ] {
        for limited in [false, true] {
            let mut tp = TcpSock::default();
            tp.set_ca_state(state);
            tp.set_cwnd_limited(limited);
            // SAFETY: reads two fields of a whole tcp_sock.
            let bits = unsafe { skyhop_layout_bits(&mut tp) };
            assert_eq!(bits, state as u32 | u32::from(limited) << 8);
            assert_eq!((tp.ca_state(), tp.is_cwnd_limited()), (state, limited));
        }
    }
}
