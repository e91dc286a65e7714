//! Properties of every congestion control: those in `cc/`, and one in Rust.

use crate::fixed_window::FixedWindow;
use crate::path::Sender;
use proptest::prelude::*;
use skyhop_cc::{
    AckSample, CaEvent, Caller, CongestionControl, Controller, Handover, Module, RateSample,
    Registry, Setup, TcpSock,
};
use skyhop_model::CongestionState;

/// Caller with all hooks and features of the kernel.
pub const EVERYTHING: Caller =
    Caller { name: "every TCP", calls: Caller::LINUX_CALLS, has_ecn: true };

/// Registry of the modules and a controller in Rust.
pub fn with_fixed_window() -> Registry {
    let registry = Registry::new();
    FixedWindow::join(&registry);
    registry
}

/// Return all controllers with their names.
fn every_one(setup: Setup<'_>) -> impl Iterator<Item = (String, Controller)> {
    let registry = with_fixed_window();
    registry.names().into_iter().map(move |name| {
        let controller = registry.start(&name, &setup, &EVERYTHING);
        (name, controller.expect("the defaults are valid"))
    })
}

#[test]
fn all_are_found_by_their_names() {
    assert!(!Module::all().is_empty());
    for module in Module::all() {
        assert_eq!(Module::find(module.name()).unwrap().name(), module.name());
        assert!(!module.about().is_empty());
    }
}

#[test]
fn every_parameter_is_whole() {
    for module in Module::all() {
        for param in module.params() {
            let name = format!("{}.{}", module.name(), param.name);
            assert!(param.scale > 0 && !param.about.is_empty(), "{name}");
            for inside in [param.initial, param.least, param.most] {
                assert_eq!(
                    param.parse(module.name(), &param.text_of(inside)),
                    Ok(inside),
                    "{name}"
                );
            }
        }
    }
}

/// The same file has to compile for the kernel: an ELF object for machine 247, BPF.
#[test]
fn every_module_compiles_for_the_kernel() {
    for module in Module::all() {
        let Some(objects) = module.bpf_objects() else {
            return skyhop_needs::missing("clang", "built without clang");
        };
        for object in [objects.current, objects.before_6_10] {
            assert_eq!(&object[..4], b"\x7fELF", "{}", module.name());
            assert_eq!(u16::from_le_bytes([object[18], object[19]]), 247, "{}", module.name());
        }
    }
}

/// Behaviour on a path of 10 packets per ms and 20 ms, a BDP of 200 packets, without loss.
#[test]
fn every_one_fills_a_clean_path() {
    for (name, controller) in every_one(Setup::default()) {
        let mut sender = Sender::new(controller, 100, 20_000);
        sender.run_until(5_000_000);
        let before = sender.tp.delivered;
        sender.run_until(9_000_000);
        let delivered = sender.tp.delivered - before;
        assert!(delivered > 36_000, "{name}: {delivered} of 40,000 packets");
    }
}

#[derive(Clone, Debug)]
enum Call {
    Ack { acked: u32, rtt_us: i32, interval_us: i64, losses: i32, limited: bool },
    Lose,
    Timeout,
    Recover,
    Undo,
    Wait { us: u64 },
    Announce { at_ns: u64 },
    AnnounceNear { in_us: i64 },
}

fn calls() -> impl Strategy<Value = Vec<Call>> {
    let ack = (0u32..200, -1i32..3_000_000, -1i64..5_000_000, 0i32..100, any::<bool>()).prop_map(
        |(acked, rtt_us, interval_us, losses, limited)| Call::Ack {
            acked,
            rtt_us,
            interval_us,
            losses,
            limited,
        },
    );
    let call = prop_oneof![
        12 => ack,
        1 => Just(Call::Lose),
        1 => Just(Call::Timeout),
        2 => Just(Call::Recover),
        1 => Just(Call::Undo),
        2 => (0u64..20_000_000).prop_map(|us| Call::Wait { us }),
        1 => any::<u64>().prop_map(|at_ns| Call::Announce { at_ns }),
        2 => (-2_000_000_i64..2_000_000).prop_map(|in_us| Call::AnnounceNear { in_us }),
    ];
    prop::collection::vec(call, 1..300)
}

fn apply(cc: &mut Controller, tp: &mut TcpSock, call: &Call) {
    match *call {
        Call::Ack { acked, rtt_us, interval_us, losses, limited } => {
            ack(cc, tp, (acked, rtt_us, interval_us, losses, limited));
        }
        Call::Lose => reduce(cc, tp, CongestionState::Recovery),
        Call::Timeout => {
            reduce(cc, tp, CongestionState::Loss);
            tp.snd_cwnd = 1;
        }
        Call::Recover => {
            cc.set_state(tp, CongestionState::Open);
            tp.set_ca_state(CongestionState::Open);
            tp.lost_out = 0;
        }
        Call::Undo => tp.snd_cwnd = cc.undo_cwnd(tp),
        Call::Wait { us } => {
            tp.tcp_mstamp += us;
            tp.packets_out = 0;
            tp.lost_out = 0;
            cc.cwnd_event(tp, CaEvent::TxStart);
        }
        Call::Announce { at_ns } => announce(cc, at_ns),
        Call::AnnounceNear { in_us } => {
            announce(cc, 1000 * tp.tcp_mstamp.saturating_add_signed(in_us));
        }
    }
}

fn announce(cc: &mut Controller, at_ns: u64) {
    cc.announce(Handover { at_ns, outage_ns: 1, error_ns: at_ns, kind: 0, valid: 1 });
}

fn ack(cc: &mut Controller, tp: &mut TcpSock, of: (u32, i32, i64, i32, bool)) {
    let (acked, rtt_us, interval_us, losses, limited) = of;
    let prior_in_flight = tp.snd_cwnd;
    tp.tcp_mstamp += u64::from(acked) * 10 + 1;
    tp.tcp_clock_cache = tp.tcp_mstamp * 1000;
    tp.delivered_mstamp = tp.tcp_mstamp;
    let prior_delivered = tp.delivered.saturating_sub(tp.snd_cwnd);
    tp.delivered += acked;
    tp.lost += losses as u32;
    tp.snd_una = tp.snd_una.wrapping_add(acked * 1448);
    tp.snd_nxt = tp.snd_una.wrapping_add(tp.snd_cwnd.wrapping_mul(1448));
    tp.packets_out = tp.snd_cwnd;
    tp.lost_out = (losses as u32).min(tp.snd_cwnd);
    tp.app_limited = u32::from(limited);
    tp.set_cwnd_limited(!limited);
    let rs = RateSample {
        prior_delivered,
        delivered: (tp.delivered - prior_delivered) as i32,
        interval_us,
        rtt_us: i64::from(rtt_us),
        losses,
        acked_sacked: acked,
        prior_in_flight,
        is_app_limited: limited,
        ..RateSample::default()
    };
    cc.in_ack_event(tp, 0);
    cc.pkts_acked(tp, &AckSample { pkts_acked: acked, rtt_us, in_flight: prior_in_flight });
    match cc.has_cong_control() {
        true => cc.cong_control(tp, tp.snd_una, 0, &rs),
        false => cc.cong_avoid(tp, tp.snd_una, acked),
    }
}

fn reduce(cc: &mut Controller, tp: &mut TcpSock, state: CongestionState) {
    tp.prior_cwnd = tp.snd_cwnd;
    tp.snd_ssthresh = cc.ssthresh(tp);
    cc.set_state(tp, state);
    tp.set_ca_state(state);
    if !cc.has_cong_control() {
        tp.snd_cwnd = tp.snd_cwnd.min(tp.snd_ssthresh);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(skyhop_needs::cases(64)))]

    /// Property: after any events in any order there is a window of at least one packet, a threshold of at
    /// least two, and a rate.
    #[test]
    fn the_window_is_never_zero(calls in calls(), hz in prop::sample::select(vec![100u32, 250, 1000])) {
        for (name, mut cc) in every_one(Setup { hz, ..Setup::default() }) {
            let mut tp = TcpSock { tcp_mstamp: 1_000_000, ..TcpSock::default() };
            tp.snd_cwnd_clamp = 1_000_000;
            cc.init(&mut tp);
            for call in &calls {
                apply(&mut cc, &mut tp, call);
                prop_assert!((1..=1_000_000).contains(&tp.snd_cwnd), "{name}: {tp:?}");
                prop_assert!(tp.snd_ssthresh >= 2, "{name}: {tp:?}");
                prop_assert!(cc.min_tso_segs(&mut tp) != Some(0));
            }
            cc.release(&mut tp);
        }
    }
}
