//! Tests of the effects of cake's classes and its filter of acknowledgements on TCP.

use skyhop_model::LossReason;
use skyhop_record::RunData;

use crate::scenario::simulate;

fn run(link: &str, flows: &str) -> RunData {
    simulate(&format!(
        "[path]\nkind = \"fixed\"\nrtt = \"40 ms\"\n[link]\n{link}\n[run]\nduration = \"20 s\"\n{flows}"
    ))
}

/// Goodput in Mbit/s of a background flow and a best-effort flow.
fn background_and_other(qdisc: &str) -> [f64; 2] {
    let link = format!("rate = \"20 Mbit/s\"\nqueue = \"16 MB\"\nqdisc = {qdisc}");
    let flows = run(&link, "[[flow]]\ndscp = \"le\"\n[[flow]]\nstart = \"5 s\"").summary.flows;
    [0, 1].map(|flow| flows[flow].goodput_bps as f64 / 1e6)
}

#[test]
fn the_background_makes_room_where_there_are_classes() {
    // Alone for 5 s of 20, and then with 1/17 or 1/16 of the rate: (5 + 15/17) / 20 of 19.2 Mbit/s.
    for qdisc in ["\"cake\"", "{ kind = \"cake\", bandwidth = \"19.9 Mbit/s\" }"] {
        let [background, other] = background_and_other(qdisc);
        assert!((4.5..6.7).contains(&background), "{qdisc}: {background} Mbit/s");
        assert!((16.0..18.5).contains(&other), "{qdisc}: {other} Mbit/s");
    }
    let [background, other] =
        background_and_other("{ kind = \"cake\", diffserv = \"besteffort\" }");
    assert!((10.0..14.0).contains(&background), "{background} Mbit/s");
    assert!((8.5..11.0).contains(&other), "{other} Mbit/s");
}

/// Run over a return path that acknowledgements of every other packet fill: 50 Mbit/s of data need some 1.1 Mbit/s of
/// them.
fn over_a_slow_way_back(ack_filter: &str) -> RunData {
    let cake = format!("{{ kind = \"cake\", ack_filter = \"{ack_filter}\" }}");
    let back = format!("{{ rate = \"200 kbit/s\", queue = \"16 MB\", qdisc = {cake} }}");
    run(&format!("rate = \"50 Mbit/s\"\nback = {back}"), "[[flow]]")
}

#[test]
fn acknowledgements_that_say_less_make_room_on_a_slow_way_back() {
    let [off, on, aggressive] = ["off", "on", "aggressive"].map(over_a_slow_way_back);
    let mbps = |data: &RunData| data.summary.flows[0].goodput_bps as f64 / 1e6;
    let srtt_ms = |data: &RunData| data.summary.flows[0].srtt_mean_us.unwrap() as f64 / 1e3;
    // The drops of both directions; forward, no packet waits.
    let filtered = |data: &RunData| data.summary.link.drops[LossReason::Queue];
    assert!(filtered(&on) > 5_000, "{} acknowledgements went", filtered(&on));
    assert!(mbps(&on) > 1.5 * mbps(&off), "{} and {} Mbit/s", mbps(&on), mbps(&off));
    assert!(srtt_ms(&on) < srtt_ms(&off), "{} and {} ms", srtt_ms(&on), srtt_ms(&off));
    assert!(mbps(&aggressive) > 0.95 * mbps(&on), "{} Mbit/s", mbps(&aggressive));
}
