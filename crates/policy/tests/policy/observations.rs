//! Tests of features and quantities against their definitions.

use skyhop_cc::{Handover, Report};
use skyhop_policy::{Card, Observer, Quantities, Quantity};

use crate::cards::{CWND, plain};
use crate::draws::Draws;

fn observer(features: &str, steps: usize) -> Observer {
    Observer::new(&Card::parse(&plain(features, steps, CWND)).unwrap())
}

fn report(number: u32) -> Report {
    Report {
        at_ns: 1_000_000_000 + u64::from(number) * 20_000_000,
        began_ns: 980_000_000,
        cwnd: 10 * (number + 1),
        delivered: 5 * number,
        mss: 1000,
        ..Report::default()
    }
}

#[test]
fn the_newest_report_is_last() {
    let mut observer = observer("{ of = \"cwnd\" }, { of = \"delivered\" }", 3);
    assert_eq!(observer.observe(&report(0), 0.0), [0.0, 0.0, 0.0, 0.0, 10.0, 0.0]);
    assert_eq!(observer.observe(&report(1), 0.0), [0.0, 0.0, 10.0, 0.0, 20.0, 5.0]);
    // After a missed report, counters grow over both intervals.
    assert_eq!(observer.observe(&report(4), 0.0), [10.0, 0.0, 20.0, 5.0, 50.0, 15.0]);
}

#[test]
fn windows_are_of_so_many_reports() {
    let features = [
        "mean(cwnd, 2)",
        "min(cwnd, 2)",
        "max(cwnd)",
        "min(cwnd)",
        "sum(cwnd, 3)",
        "previous(cwnd)",
    ]
    .map(|term| format!("{{ of = \"{term}\" }}"))
    .join(", ");
    let mut observer = observer(&features, 1);
    assert_eq!(observer.observe(&report(3), 0.0), [40.0, 40.0, 40.0, 40.0, 40.0, 0.0]);
    assert_eq!(observer.observe(&report(1), 0.0), [30.0, 20.0, 40.0, 20.0, 60.0, 40.0]);
    assert_eq!(observer.observe(&report(5), 0.0), [40.0, 20.0, 60.0, 20.0, 120.0, 20.0]);
    assert_eq!(observer.observe(&report(5), 0.0), [60.0, 60.0, 60.0, 20.0, 140.0, 60.0]);
}

#[test]
fn a_sliding_window_equals_the_aggregate_of_its_reports() {
    const TAKES: [&str; 5] = ["mean", "min", "least", "max", "sum"];
    let sizes = [1, 2, 3, 7, 50];
    let terms = TAKES.iter().flat_map(|take| sizes.map(|size| format!("{take}(lost_out, {size})")));
    let features: Vec<String> = terms.map(|term| format!("{{ of = \"{term}\" }}")).collect();
    let mut observer = observer(&features.join(", "), 1);
    let (mut draws, mut values) = (Draws(9), Vec::new());
    for _ in 0..2000 {
        // Whole numbers have exact sums, in any order.
        let lost_out = draws.below(5).saturating_sub(2) * draws.below(1000);
        values.push(f64::from(lost_out));
        let seen = observer.observe(&Report { lost_out, ..Report::default() }, 0.0);
        let mut seen = seen.iter();
        for take in TAKES {
            for size in sizes {
                let window = &values[values.len().saturating_sub(size)..];
                let sum: f64 = window.iter().sum();
                let least = |left_out: f64| {
                    let kept = window.iter().copied().filter(|value| *value != left_out);
                    kept.reduce(f64::min).unwrap_or(0.0)
                };
                let expected = match take {
                    "mean" => sum / window.len() as f64,
                    "min" => least(0.0),
                    "least" => least(f64::NAN),
                    "max" => window.iter().copied().fold(0.0, f64::max),
                    _ => sum,
                };
                assert_eq!(*seen.next().unwrap(), expected as f32, "{take} of {size}: {window:?}");
            }
        }
    }
}

#[test]
fn quantities_of_the_cards_own_have_windows_like_any() {
    let quantities = "{ name = \"grown\", of = \"change(cwnd)\" }, \
                      { name = \"most\", of = \"max(grown, 2)\", over = \"mss_bytes\", times = 1e3, least = 0.0 }";
    let features = "{ of = \"grown\" }, { of = \"sum(most, 2)\", over = \"most\" }, { of = \"previous(most)\" }, \
                    { of = \"output\", times = 2.0, decimals = 1 }";
    let card = plain(features, 1, CWND)
        .replace("features =", &format!("quantities = [{quantities}]\nfeatures ="));
    let mut observer = Observer::new(&Card::parse(&card).unwrap());
    // The first report's counters grow from 0.
    assert_eq!(observer.observe(&report(0), 0.52), [10.0, 1.0, 0.0, 1.0]);
    assert_eq!(observer.observe(&report(3), -0.03), [30.0, 40.0 / 30.0, 10.0, -0.1]);
    assert_eq!(observer.observe(&report(1), 0.0), [-20.0, 2.0, 30.0, 0.0]);
    // Both values of the window are below 0 now, and the quantity is not.
    assert_eq!(observer.observe(&report(0), 0.0), [-10.0, 0.0, 30.0, 0.0]);
}

#[test]
fn zeros_have_values_of_their_own_and_bounds_hold() {
    let mut observer = observer(
        "{ of = \"delivered\", over = \"lost\", if_zero = 0.5 }, { of = \"cwnd\", over = \"lost\", otherwise = 7.0 }, \
         { of = [\"cwnd\", \"cwnd\"], over = \"one\", times = 0.5, plus = -1.0, most = 30.0 }",
        1,
    );
    assert_eq!(observer.observe(&report(0), 0.0), [0.5, 7.0, 30.0]);
}

#[test]
fn quantities_are_in_their_units() {
    let before = Report {
        at_ns: 1_000_000_000,
        delivered: 100,
        lost: 2,
        bytes_sent: 7,
        ..Report::default()
    };
    let now = Report {
        at_ns: 1_500_000_000,
        delivered: 150,
        lost: 3,
        bytes_sent: 1_000_007,
        mss: 1250,
        rtt_sum_us: 60_000,
        rtt_samples: 2,
        rtt_first_us: 20_000,
        rtt_last_us: 40_000,
        mdev_us: 1500,
        rttvar_us: 50_000,
        rate_sum: 3 * 16_777_216 / 1024,
        rate_samples: 3,
        pacing_rate: 1_000_000,
        min_rtt_us: u32::MAX,
        handover: Handover {
            at_ns: 2_000_000_000,
            outage_ns: 100_000_000,
            valid: 1,
            ..Handover::default()
        },
        ..Report::default()
    };
    let of = Quantities::of(&now, Some(&before), 0.25);
    for (quantity, expected) in [
        (Quantity::Interval, 0.5),
        (Quantity::DeliveredRate, 50.0 * 1250.0 * 8.0 / 0.5),
        (Quantity::Lost, 1.0),
        (Quantity::SentRate, 16e6),
        (Quantity::RttMean, 0.03),
        (Quantity::RttSlope, 0.04),
        (Quantity::RttDev, 0.0015),
        (Quantity::RttVar, 0.05),
        // A packet in 1024 us.
        (Quantity::Rate, 1e10 / 1024.0),
        (Quantity::Pacing, 8e6),
        (Quantity::MinRtt, 0.0),
        (Quantity::HandoverIn, 0.5),
        (Quantity::HandoverOutage, 0.1),
        (Quantity::Output, 0.25),
    ] {
        let value = of.get(quantity);
        assert!((value - expected).abs() <= 1e-5 * expected.abs(), "{}: {value}", quantity.name());
    }
    let unannounced = Quantities::of(&Report::default(), None, 0.0);
    assert_eq!(unannounced.get(Quantity::HandoverIn), 60.0);
}

fn page() -> String {
    let page = std::path::Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../docs/reference/policy-card.md");
    std::fs::read_to_string(page).unwrap()
}

#[test]
fn the_pages_quantities_are_those_of_a_card() {
    let page = page();
    let begin = page.find("```toml\nquantities = [\n").unwrap() + "```toml\n".len();
    let block = &page[begin..begin + page[begin..].find("```").unwrap()];
    let card = plain("", 1, CWND).replace("features = []", block);
    let card = Card::parse(&card).unwrap();
    assert_eq!((card.observation.quantities.len(), card.inputs()), (3, 2));
}

#[test]
fn all_quantities_stand_in_the_documentation() {
    let page = page();
    for quantity in Quantity::ALL {
        let name = quantity.name();
        assert!(page.contains(&format!("`{name}`")), "docs/reference/policy-card.md lacks {name}");
    }
}
