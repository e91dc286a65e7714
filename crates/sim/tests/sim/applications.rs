//! Tests of applications over simulated TCP.

use skyhop_model::AppTable;
use skyhop_record::{AppRow, RunData};

use crate::scenario::simulate;

/// Run one flow with these keys over a path of 40 ms and 50 Mbit/s.
fn run(flow: &str, more: &str) -> RunData {
    simulate(&format!(
        "[path]\nkind = \"fixed\"\nrtt = \"40 ms\"\n[link]\nrate = \"50 Mbit/s\"\n[[flow]]\n{flow}\n\
         [run]\nduration = \"20 s\"\n{more}"
    ))
}

fn latencies_ms(rows: &[AppRow]) -> Vec<f64> {
    rows.iter().filter_map(|row| Some(row.latency_ns? as f64 / 1e6)).collect()
}

/// Time of `bytes` of payload on the wire at 50 Mbit/s.
fn on_the_wire_ms(bytes: f64) -> f64 {
    bytes / 1448.0 * 1514.0 * 8.0 / 50e3
}

#[test]
fn an_answer_takes_the_rounds_of_slow_start() {
    let run = run(
        r#"app = {kind = "request-response", response = "100 kB", think = "200 ms", per_connection = 1}"#,
        "",
    );
    let rows = &run.apps[&AppTable::Requests];
    // A handshake, then three rounds with 10, 20 and 40 of the 70 segments.
    let expected = 40.0 + 3.0 * 40.0 + on_the_wire_ms(40.0 * 1448.0);
    for row in rows {
        let took = row.latency_ns.unwrap() as f64 / 1e6;
        assert!((took - expected).abs() < 6.0, "{took} ms, not {expected}");
        assert!((row.connect_ns.unwrap() as f64 / 1e6 - 40.0).abs() < 0.1, "{row:?}");
        assert!((row.first_byte_ns.unwrap() as f64 / 1e6 - 80.0).abs() < 1.0, "{row:?}");
    }
    let cycle_ms = expected + 200.0;
    assert!((rows.len() as f64 - 20_000.0 / cycle_ms).abs() <= 2.0, "{}", rows.len());
    assert_eq!(
        rows.iter().map(|row| row.connection).collect::<Vec<_>>(),
        (0..rows.len() as i32).collect::<Vec<_>>()
    );
    let summary = &run.summary.apps[0];
    assert_eq!((summary.completed, summary.failed), (rows.len() as u64, 0));
    assert!(summary.latency_p50_us.unwrap().abs_diff(expected as u64 * 1000) < 6_000);
}

#[test]
fn an_open_connection_answers_faster_until_it_has_idled() {
    let kept =
        run(r#"app = {kind = "request-response", response = "100 kB", think = "20 ms"}"#, "");
    let idled = run(r#"app = {kind = "request-response", response = "100 kB", think = "2 s"}"#, "");
    let (kept, idled) = (
        latencies_ms(&kept.apps[&AppTable::Requests]),
        latencies_ms(&idled.apps[&AppTable::Requests]),
    );
    // The window that earlier answers opened holds a whole answer.
    assert!(kept[5..].iter().all(|took| *took < 40.0 + on_the_wire_ms(1e5) + 3.0), "{kept:?}");
    // After 2 s without a packet the window is the initial one again (RFC 2861).
    assert!(idled[1..].iter().all(|took| *took > 3.0 * 40.0), "{idled:?}");
}

#[test]
fn a_slow_reader_gets_what_it_reads_and_keeps_the_queue_short() {
    let slow = run(
        r#"app = {kind = "bulk", read_rate = "5 Mbit/s"}
           tcp = {receive_buffer = "200 kB"}"#,
        "",
    );
    let fast = run(r#"app = {kind = "bulk"}"#, "");
    let goodput = slow.summary.flows[0].goodput_bps as f64 / 5e6;
    assert!((0.95..1.1).contains(&goodput), "goodput is {goodput} of the read rate");
    assert!(fast.summary.flows[0].goodput_bps > 45_000_000);
    let in_flight = slow.flows.iter().map(|row| row.inflight_packets).max().unwrap();
    assert!(in_flight <= 240_000 / 1448, "{in_flight} packets");
    assert_eq!(slow.summary.flows[0].retransmits, 0);
}

#[test]
fn a_request_over_a_path_that_is_down_fails_and_the_next_ones_do_not() {
    let run = run(
        r#"app = {kind = "request-response", response = "10 kB", think = "50 ms", timeout = "1 s"}"#,
        "[[change]]\nat = \"5 s\"\noutage = \"2500 ms\"\n",
    );
    let rows = &run.apps[&AppTable::Requests];
    let failed: Vec<i64> = rows
        .iter()
        .filter(|row| row.latency_ns.is_none())
        .map(|row| row.t_ns / 1_000_000)
        .collect();
    assert!(!failed.is_empty() && failed.len() <= 3, "{failed:?}");
    assert!(failed.iter().all(|at| (4900..7500).contains(at)), "{failed:?}");
    assert_eq!(run.summary.apps[0].failed, failed.len() as u64);
    let last = rows.last().unwrap();
    assert!(last.t_ns > 19_500_000_000 && last.connection > 0, "{last:?}");
}

#[test]
fn messages_of_a_constant_rate_arrive_after_the_one_way_delay() {
    let run = run(
        r#"app = {kind = "constant-rate", rate = "1 Mbit/s", size = "500 B"}
           tcp = {nodelay = true}"#,
        "",
    );
    let rows = &run.apps[&AppTable::Messages];
    // One message every 4 ms.
    assert!((4980..=5000).contains(&rows.len()), "{}", rows.len());
    let late: Vec<&AppRow> =
        rows[40..].iter().filter(|row| row.latency_ns > Some(20_500_000)).collect();
    assert!(late.is_empty(), "{} of them: {:?}", late.len(), late[0]);
    let held =
        self::run(r#"app = {kind = "constant-rate", rate = "1 Mbit/s", size = "500 B"}"#, "");
    // Nagle: a short segment waits until the one before is acknowledged, or until it is full.
    let mean = |run: &RunData| {
        let took = latencies_ms(&run.apps[&AppTable::Messages]);
        took.iter().sum::<f64>() / took.len() as f64
    };
    assert!(mean(&held) > mean(&run) + 1.0, "{} and {}", mean(&held), mean(&run));
}

#[test]
fn bursts_come_and_go() {
    let run = run(r#"app = {kind = "on-off", on = "1 s", off = "1 s"}"#, "");
    let rows = &run.apps[&AppTable::Bursts];
    assert_eq!(rows.len(), 9);
    // A burst sends what 1 s carries, less slow start, and the data that was written before it stopped: the send
    // buffer holds several windows.
    assert!(
        rows[1..].iter().all(|row| (5_000_000..8_000_000).contains(&row.sent_bytes)),
        "{rows:?}"
    );
    let quiet = |row: &&skyhop_record::FlowSample| row.t_ns % 2_000_000_000 > 1_500_000_000;
    assert!(run.flows.iter().filter(quiet).all(|row| row.goodput_bps == 0));
}
