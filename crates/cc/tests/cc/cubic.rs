//! CUBIC compared with RFC 9438, driven by an ideal ACK clock: a window of ACKs per RTT, evenly spaced.

use crate::ack_clock::{AckClock, MSS};
use skyhop_cc::{CaEvent, CongestionControl, SK_PACING_NEEDED, jiffies};
use skyhop_model::CongestionState;

const BETA: f64 = 717.0 / 1024.0;
const C: f64 = 410.0 / 1024.0;

/// Return a clock in the state after a loss at this window.
fn after_loss_at(cwnd: u32, rtt_us: u64, params: &[(&str, &str)]) -> AckClock {
    let mut clock = AckClock::new("cubic", params, rtt_us);
    clock.ack(1, rtt_us);
    clock.tp.snd_cwnd = cwnd;
    clock.loss();
    clock
}

fn k_seconds(w_max: f64, cwnd: f64) -> f64 {
    ((w_max - cwnd) / C).cbrt()
}

/// Curve of RFC 9438 4.2, figures 1 and 2; 4.4 concave, 4.5 convex.
#[test]
fn the_window_follows_the_cubic_curve() {
    let mut clock = after_loss_at(1000, 20_000, &[("friendliness", "0")]);
    assert_eq!(clock.tp.snd_cwnd, (1000.0 * BETA) as u32);
    let k = k_seconds(1000.0, 700.0);
    let curve = clock.curve(2.0 * k);
    for &(t, cwnd) in &curve {
        let w_cubic = C * (t - k).powi(3) + 1000.0;
        // Tolerance: one packet, and the growth of the curve in the RTT that the window takes to follow it
        let slope = 3.0 * C * (t - k).powi(2);
        let tolerance = 1.0 + slope * 0.020;
        assert!((cwnd - w_cubic).abs() <= tolerance, "t {t}: cwnd {cwnd}, W_cubic {w_cubic}");
    }
    let at = |t: f64| curve.iter().find(|(time, _)| *time >= t).unwrap().1;
    let growth = |from: f64| at((from + 0.2) * k) - at(from * k);
    assert!(growth(0.0) > growth(0.3) && growth(0.3) > growth(0.7), "concave up to K");
    assert!(growth(1.0) < growth(1.3) && growth(1.3) < growth(1.75), "convex beyond K");
    assert!((at(k) - 1000.0).abs() <= 1.0, "flat at W_max after K: {}", at(k));
}

/// The curve is a function of time, not of the RTT (RFC 9438 4.2).
#[test]
fn the_curve_does_not_depend_on_the_rtt() {
    let windows: Vec<f64> = [10_000, 50_000, 200_000]
        .map(|rtt_us| {
            let off = [("friendliness", "0")];
            after_loss_at(1000, rtt_us, &off).curve(6.0).last().unwrap().1
        })
        .to_vec();
    for window in &windows {
        assert!((window - windows[0]).abs() <= 4.0, "{windows:?}");
    }
}

/// The curve does not depend, except for rounding, on the tick of the kernel's clock.
#[test]
fn the_curve_does_not_depend_on_hz() {
    let windows: Vec<f64> = [100, 250, 1000]
        .map(|hz| {
            let mut clock = after_loss_at(1000, 20_000, &[("friendliness", "0")]);
            clock.cc = clock.cc.with_hz(hz);
            clock.curve(6.0).last().unwrap().1
        })
        .to_vec();
    for window in &windows {
        assert!((window - windows[0]).abs() <= 2.0, "{windows:?}");
    }
}

/// Fast convergence of RFC 9438 4.7.
#[test]
fn fast_convergence_gives_room_to_new_flows() {
    let plateau = |fast: &str| {
        let params = [("friendliness", "0"), ("fast_convergence", fast)];
        let mut clock = after_loss_at(1000, 20_000, &params);
        clock.tp.snd_cwnd = 800;
        clock.loss();
        let w_max = if fast == "1" { 800.0 * (1.0 + BETA) / 2.0 } else { 800.0 };
        let k = k_seconds(w_max, f64::from(clock.tp.snd_cwnd));
        (clock.curve(k).last().unwrap().1, w_max)
    };
    for fast in ["0", "1"] {
        let (cwnd, w_max) = plateau(fast);
        assert!((cwnd - w_max).abs() <= 1.5, "fast_convergence {fast}: {cwnd} instead of {w_max}");
    }
}

/// Reno-friendly growth of 3 (1 - beta) / (1 + beta) packets per RTT, where that is faster (RFC 9438 4.3).
#[test]
fn in_small_windows_it_grows_like_reno() {
    let mut friendly = after_loss_at(40, 10_000, &[]);
    let mut strict = after_loss_at(40, 10_000, &[("friendliness", "0")]);
    let start = f64::from(friendly.tp.snd_cwnd);
    let alpha = 3.0 * (1.0 - BETA) / (1.0 + BETA);
    for (t, cwnd) in friendly.curve(1.0) {
        let reno = start + alpha * t / 0.010;
        // While cwnd does not change, Linux updates 32 times a second: three RTTs late, then one to follow.
        let late = alpha * (1.0 / 32.0 + 0.010) / 0.010;
        assert!(cwnd <= reno + 1.0, "t {t}: cwnd {cwnd}, W_est {reno}");
        assert!(cwnd >= reno - 1.0 - late, "t {t}: cwnd {cwnd}, W_est {reno}");
    }
    strict.curve(1.0);
    assert!(strict.tp.snd_cwnd + 20 < friendly.tp.snd_cwnd, "the cubic curve alone is far slower");
}

/// HyStart's first trigger: ACKs without a gap for longer than half the minimum RTT.
#[test]
fn hystart_leaves_slow_start_on_an_ack_train() {
    let exit_after_us = |is_paced: bool| {
        let mut clock = AckClock::new("cubic", &[("hystart_detect", "1")], 100_000);
        if is_paced {
            clock.tp.sk_mut().sk_pacing_status = SK_PACING_NEEDED;
            clock.tp.sk_mut().sk_pacing_rate = 1_000_000_000;
        }
        clock.tp.snd_cwnd = 200;
        clock.tp.snd_nxt = 200 * MSS;
        clock.ack(1, 100_000);
        let round_us = clock.tp.tcp_mstamp;
        while clock.tp.in_slow_start() && clock.tp.tcp_mstamp < round_us + 150_000 {
            clock.ack(1_000, 100_000);
        }
        assert_eq!(clock.tp.snd_ssthresh, clock.tp.snd_cwnd);
        clock.tp.tcp_mstamp - round_us
    };
    assert_eq!(exit_after_us(false), 51_000);
    // Paced packets are spread anyway; the allowance for bursts, 4 * 64 KiB at the pacing rate, is 262 us.
    assert_eq!(exit_after_us(true), 101_000);
}

#[test]
fn hystart_ignores_trains_with_gaps_and_small_windows() {
    for (cwnd, gap_us) in [(200, 2_500), (4, 1_000)] {
        let low = [("hystart_detect", "1"), ("hystart_low_window", "100")];
        let mut clock = AckClock::new("cubic", &low, 100_000);
        clock.tp.snd_cwnd = cwnd;
        for _ in 0..90 {
            clock.ack(gap_us, 100_000);
        }
        assert!(clock.tp.in_slow_start(), "cwnd {cwnd}, gap {gap_us}");
    }
}

/// HyStart's second trigger: the first eight RTTs of a round exceed the minimum by an eighth, 4 to 16 ms.
#[test]
fn hystart_leaves_slow_start_when_the_rtt_grows() {
    for (base_us, margin_us) in [(8_000, 4_000), (80_000, 10_000), (400_000, 16_000)] {
        let leaves = |extra_us: u64| {
            let mut clock = AckClock::new("cubic", &[("hystart_detect", "2")], base_us);
            clock.tp.snd_cwnd = 50;
            clock.ack(10, base_us);
            clock.tp.snd_una = clock.tp.snd_nxt;
            for _ in 0..12 {
                clock.ack(10, base_us + extra_us);
            }
            !clock.tp.in_slow_start() || clock.tp.snd_ssthresh < 100
        };
        assert!(!leaves(margin_us), "{base_us} us: {margin_us} us more are still noise");
        assert!(leaves(margin_us + 1), "{base_us} us: more than {margin_us} us are a queue");
    }
}

#[test]
fn without_hystart_slow_start_goes_on() {
    let mut clock = AckClock::new("cubic", &[("hystart", "0")], 50_000);
    for _ in 0..10 {
        clock.round();
    }
    assert_eq!(clock.tp.snd_cwnd, 10 << 10);
}

/// Timeouts and undo of RFC 9438 4.8 and 4.9.
#[test]
fn a_spurious_loss_is_undone_and_a_timeout_forgets() {
    let mut clock = after_loss_at(1000, 20_000, &[]);
    assert_eq!(clock.cc.undo_cwnd(&mut clock.tp), 1000);
    clock.cc.set_state(&mut clock.tp, CongestionState::Loss);
    clock.tp.snd_cwnd = 100;
    clock.tp.snd_ssthresh = 100;
    // No maximum is known: growth of at least 5 % per RTT.
    clock.round();
    assert_eq!(clock.tp.snd_cwnd, 105);
}

/// The curve continues after idle from where it was (RFC 9438 5.8).
#[test]
fn idle_time_does_not_count() {
    let mut clock = after_loss_at(1000, 20_000, &[("friendliness", "0")]);
    clock.curve(2.0);
    let before = clock.tp.snd_cwnd;
    clock.tp.lsndtime = jiffies(clock.tp.tcp_mstamp, 1000);
    clock.tp.tcp_mstamp += 60_000_000;
    clock.cc.cwnd_event(&mut clock.tp, CaEvent::TxStart);
    clock.round();
    assert!(clock.tp.snd_cwnd - before < 5, "{before} to {}", clock.tp.snd_cwnd);
}
