//! Tests of the effects of queues that drop or mark early on TCP.

use skyhop_model::{Direction, LossReason};
use skyhop_record::RunData;

use crate::scenario::simulate;

const RATE_BPS: f64 = 50e6;

/// Run 20 s over 50 Mbit/s and 40 ms with room for four BDP.
fn run(qdisc: &str, flows: &str) -> RunData {
    simulate(&format!(
        "[path]\nkind = \"fixed\"\nrtt = \"40 ms\"\n[link]\nrate = \"50 Mbit/s\"\nqueue = \"4 BDP\"\n\
         qdisc = {qdisc}\n[run]\nduration = \"20 s\"\n{flows}"
    ))
}

/// Queueing delays at the samples after slow start, in ms at the link's rate, sorted.
fn waits_ms(data: &RunData) -> Vec<f64> {
    let forward = data.link.iter().filter(|row| row.direction == Direction::Forward);
    let settled = forward.filter(|row| row.t_ns > 2_000_000_000);
    let mut waits: Vec<f64> =
        settled.map(|row| row.backlog_bytes as f64 * 8e3 / RATE_BPS).collect();
    waits.sort_by(f64::total_cmp);
    waits
}

/// RFC 8289 3: a standing queue stays near the target, and the link stays busy.
#[test]
fn cubics_standing_queue_is_kept_near_the_target() {
    let waits = |qdisc: &str| waits_ms(&run(qdisc, "[[flow]]\n[[flow]]"));
    let tail = waits("\"fifo\"");
    assert!(tail[tail.len() / 2] > 50.0, "without it they fill the queue: {tail:?}");
    for (qdisc, target_ms) in [
        ("\"codel\"", 5.0),
        ("{ kind = \"codel\", target = \"15 ms\", interval = \"100 ms\" }", 15.0),
    ] {
        let waits = waits(qdisc);
        let (median, p95) = (waits[waits.len() / 2], waits[waits.len() * 95 / 100]);
        assert!((0.3 * target_ms..1.5 * target_ms).contains(&median), "{qdisc}: {median} ms");
        assert!(p95 < 3.0 * target_ms, "{qdisc}: {p95} ms");
        let used = run(qdisc, "[[flow]]\n[[flow]]").summary.link.utilisation;
        assert!(used > 0.93, "{qdisc}: {used}");
    }
}

#[test]
fn a_flow_with_ecn_is_marked_where_another_loses_packets() {
    let qdisc = "{ kind = \"codel\", ecn = true }";
    let data = run(qdisc, "[[flow]]\ntcp = { ecn = true }\n[[flow]]");
    let [speaks, silent] = &data.summary.flows[..] else { panic!("two flows") };
    let marks = speaks.marks.unwrap();
    assert!(marks >= 5 && speaks.retransmits == 0, "{speaks:?}");
    assert!(silent.marks == Some(0) && silent.retransmits >= 5, "{silent:?}");
    assert_eq!(data.summary.link.marks, marks);
    assert_eq!(data.summary.link.drops[LossReason::Queue], silent.retransmits);
    let of_link: i64 = data.link.iter().map(|row| row.marks).sum();
    let of_flow: i64 = data.flows.iter().filter_map(|row| row.marks).sum();
    assert_eq!((of_link, of_flow), (marks as i64, marks as i64));
    assert!(data.flows.iter().all(|row| row.flow == 0 || row.marks == Some(0)));
    assert!(data.events.iter().all(|row| row.flow != Some(0)), "nothing of it was lost");
}

/// A queue that may mark drops packets that are not ECN-capable; one that may not drops from all flows.
#[test]
fn both_the_queue_and_the_flow_have_to_want_it() {
    for (qdisc, flow) in [
        ("{ kind = \"codel\", ecn = true }", "[[flow]]"),
        ("\"codel\"", "[[flow]]\ntcp.ecn = true"),
        ("\"fifo\"", "[[flow]]\ntcp.ecn = true"),
    ] {
        let summary = run(qdisc, flow).summary;
        assert_eq!((summary.link.marks, summary.flows[0].marks), (0, Some(0)), "{qdisc} {flow}");
        assert!(summary.link.drops[LossReason::Queue] > 0, "{qdisc} {flow}");
    }
}
