//! Window curve of RFC 9438, as the window over time shows it after one loss.

use skyhop_cc::Instance;
use skyhop_model::CongestionState;
use skyhop_units::Duration;

use crate::path::{Path, lose_once, module, ms};

/// Constants beta and C of RFC 9438 4.6 and 5.1; Linux rounds both to 1/1024, too fine for the samples here to
/// show.
const BETA: f64 = 0.7;
const C: f64 = 0.4;
const RTT_S: f64 = 0.1;

/// Trace the window of a flow that loses one segment at about 600, on a path with room for 825: from the end of
/// its recovery on, as (seconds since then, segments); and the window at the loss.
fn after_a_loss(params: &[(&str, &str)]) -> (Vec<(f64, f64)>, f64) {
    let params = [&[("hystart", "0")], params].concat();
    let mut path: Path<Instance> = Path::new(module("cubic", &params), ms(50))
        .with_bottleneck("100 Mbit/s", 100_000)
        .judging_segments(lose_once([590]));
    path.sender.write_without_end();
    path.run_for(Duration::from_secs(16));
    let lost = path.trace.iter().position(|(_, i)| i.ca_state == CongestionState::Recovery);
    let lost = lost.expect("a recovery");
    let w_max = path.trace[lost - 1].1.cwnd;
    let after = path.trace[lost..].iter().skip_while(|(_, i)| i.ca_state != CongestionState::Open);
    let after: Vec<_> = after.collect();
    assert!(
        after.iter().all(|(_, i)| i.ca_state == CongestionState::Open),
        "one loss, one recovery"
    );
    let start = after[0].0;
    let curve = after.iter().map(|(at, i)| ((*at - start).as_secs_f64(), f64::from(i.cwnd)));
    (curve.collect(), w_max.into())
}

/// Window of RFC 9438 4.2, figures 1 and 2: W_cubic(t) = C (t - K)^3 + W_max, starting at beta W_max.
#[test]
fn after_a_loss_the_window_follows_the_cubic_curve() {
    let (curve, w_max) = after_a_loss(&[]);
    assert!((500.0..700.0).contains(&w_max), "{w_max}");
    assert_eq!(curve[0].1, (w_max * BETA).floor());
    let k = (w_max * (1.0 - BETA) / C).cbrt();
    assert!((7.0..8.2).contains(&k), "{k}");
    let mut within = 0;
    for &(t, cwnd) in curve.iter().filter(|(t, _)| *t < 1.9 * k) {
        let w_cubic = C * (t - k).powi(3) + w_max;
        // RFC 9438 4.2 aims a round trip ahead and takes one to get there.
        let per_round_trip = 3.0 * C * (t - k).powi(2) * RTT_S;
        let error = (cwnd - w_cubic).abs();
        assert!(error <= 2.0 + per_round_trip, "t {t:.3}: {cwnd}, W_cubic {w_cubic:.1}");
        within += 1;
    }
    assert!(within > 10_000, "{within} ACKs");
}

/// Growth of RFC 9438 4.4 and 4.5: fast, slow around W_max, fast again.
#[test]
fn the_curve_is_concave_then_convex() {
    let (curve, w_max) = after_a_loss(&[]);
    let k = (w_max * (1.0 - BETA) / C).cbrt();
    let at = |t: f64| curve.iter().find(|(time, _)| *time >= t * k).expect("a sample").1;
    let growth = [0.0, 0.3, 0.9, 1.5, 1.7].map(|from| at(from + 0.2) - at(from));
    assert!(growth[0] > 2.0 * growth[1], "{growth:?}");
    assert!(growth[2] <= 1.0, "flat at W_max: {growth:?}");
    assert!(growth[4] > growth[3] && growth[3] > growth[2], "{growth:?}");
    assert!((at(1.0) - w_max).abs() <= 2.0, "{} at K, {w_max} before", at(1.0));
}
