//! Services of the host of modules: tests/modules/probe.c reports what it sees.

use skyhop_cc::{CongestionControl, Handover, Instance, Module, TcpSock, jiffies};
use skyhop_model::{CongestionState, PhaseKind};

fn probe() -> Instance {
    Instance::new(Module::fixture("probe"), &[]).unwrap()
}

#[test]
fn modules_hear_what_is_announced_to_their_instance_alone() {
    let mut tp = TcpSock::default();
    let (mut one, mut other) = (probe(), probe());
    one.announce(Handover { at_ns: 42, valid: 1, ..Handover::default() });
    assert_eq!((one.ssthresh(&mut tp), other.ssthresh(&mut tp)), (42, 0));
    one.announce(Handover::default());
    assert_eq!(one.ssthresh(&mut tp), 0);
    assert_eq!(tp, TcpSock::default(), "no trace of the call");
}

#[test]
fn jiffies_are_the_same_on_both_sides() {
    for hz in [100, 250, 1000] {
        for tcp_mstamp in [0, 9_999, 10_000, 123_456_789, 10_000_000_000_000] {
            let mut tp = TcpSock { tcp_mstamp, ..TcpSock::default() };
            assert_eq!(probe().with_hz(hz).undo_cwnd(&mut tp), jiffies(tcp_mstamp, hz));
        }
    }
}

#[test]
fn random_choices_come_from_the_seed_and_reach_every_value() {
    let draw = |seed| {
        let (mut cc, mut tp) = (probe().with_seed(seed), TcpSock::default());
        (0..700).map(|_| cc.min_tso_segs(&mut tp).unwrap()).collect()
    };
    let (one, again, other): (Vec<u32>, Vec<u32>, Vec<u32>) = (draw(1), draw(1), draw(2));
    assert_eq!(one, again);
    assert_ne!(one, other);
    for value in 0..7 {
        let times = one.iter().filter(|drawn| **drawn == value).count();
        assert!((60..140).contains(&times), "{value}: {times} of 700");
    }
}

#[test]
fn what_the_kernel_has_as_bit_fields_is_read_as_it_was_set() {
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
            let bits = probe().sndbuf_expand(&mut tp);
            assert_eq!(bits, Some(state as u32 | u32::from(limited) << 8));
            assert_eq!((tp.ca_state(), tp.is_cwnd_limited()), (state, limited));
        }
    }
}

#[test]
fn however_many_phases_a_hook_tells_of_none_is_lost() {
    let (mut cc, mut tp) = (probe(), TcpSock::default());
    cc.cong_avoid(&mut tp, 7, 100);
    cc.cong_avoid(&mut tp, 9, 1);
    let phases = cc.take_phases();
    assert_eq!(phases.len(), 101);
    assert_eq!((phases[98].begin_ns, phases[98].end_ns), (7, 7 + 98));
    assert_eq!((phases[98].kind, phases[100].begin_ns), (PhaseKind::ProbeRtt, 9));
    assert!(cc.take_phases().is_empty());
}
