//! Tests of both ends of every application over a transport of 10 ms each way and 8 Mbit/s.

use skyhop_units::{Bytes, Duration, Instant};

use skyhop_video::ChunkRow;

use crate::{
    Action, App, AppKind, Application, Datagram, Detail, Event, FlowFacts, Side, Transaction,
    Transport,
};

const ONE_WAY: Duration = Duration::from_millis(10);
/// Time in ms after the end of all runs, for tests in which the connection never fails.
const LATER: u64 = 1_000_000;
const BYTES_PER_MS: u64 = 1000;

fn at(ms: u64) -> Instant {
    Instant::START + Duration::from_millis(ms)
}

/// Parse an application as a scenario writes it, with `kind` among the keys.
fn read(json: &str) -> Result<App, serde_json::Error> {
    let mut keys: serde_json::Map<String, serde_json::Value> = serde_json::from_str(json)?;
    let kind = keys.remove("kind").unwrap();
    serde_json::from_value(serde_json::json!({ kind.as_str().unwrap(): keys }))
}

fn app(json: &str) -> App {
    read(json).unwrap()
}

/// One end with its unsent bytes and the events in transit to it, advanced by milliseconds.
struct End {
    app: Box<dyn Application>,
    unsent: u64,
    endless: bool,
    finished: bool,
    /// Events in transit, with their arrival times.
    coming: Vec<(Instant, Event)>,
}

impl End {
    fn new(app: Box<dyn Application>) -> Self {
        Self { app, unsent: 0, endless: false, finished: false, coming: Vec::new() }
    }
}

/// Run both ends for `ms` milliseconds; return the results of all ends and the number of connections. From
/// `dead_ms` on the transport delivers nothing.
fn run(app: &App, ms: u64, dead_ms: u64) -> (Vec<Transaction>, u32) {
    let facts = FlowFacts { seed: 3, start: at(0), stop: at(ms) };
    let mut ends = vec![End::new(app.client(&facts))];
    if app.transport() == Transport::Datagrams {
        ends.push(End::new(app.server(&facts, 0)));
    }
    let (mut results, mut connections) = (Vec::new(), 0);
    for now in (0..ms).map(at) {
        for index in 0..2 {
            if index >= ends.len() {
                break;
            }
            let (due, later): (Vec<_>, Vec<_>) =
                std::mem::take(&mut ends[index].coming).into_iter().partition(|(at, _)| *at <= now);
            ends[index].coming = later;
            due.into_iter().for_each(|(_, event)| ends[index].app.on_event(now, event));
            loop {
                match ends[index].app.poll(now) {
                    Action::Wait(until) => {
                        assert!(until > now, "it waits for what is over");
                        break;
                    }
                    Action::Connect => {
                        ends.truncate(1);
                        let server = app.server(&facts, connections);
                        connections += 1;
                        ends.push(End::new(server));
                        (ends[0].unsent, ends[0].finished) = (0, false);
                        if now < at(dead_ms) {
                            ends[0].coming = vec![(now + ONE_WAY * 2, Event::Connected)];
                        }
                    }
                    Action::Open(_) | Action::Select(_) => {
                        panic!("there is one connection at a time")
                    }
                    Action::Write(bytes) => {
                        assert!(bytes > Bytes::ZERO && !ends[index].finished);
                        ends[index].unsent += bytes.as_u64();
                    }
                    Action::WriteWithoutEnd => ends[index].endless = true,
                    Action::Pause => ends[index].endless = false,
                    Action::Finish => {
                        ends[index].finished = true;
                        let arrives = now + ONE_WAY;
                        if let Some(other) = ends.get_mut(1 - index) {
                            other.coming.push((arrives, Event::PeerFinished));
                        }
                    }
                    Action::Abort => ends.truncate(1),
                    Action::Send(datagram) if now < at(dead_ms) => {
                        let arrival = (now + ONE_WAY, Event::Datagram(datagram));
                        ends[1 - index].coming.push(arrival);
                    }
                    Action::Send(_) => {}
                }
            }
            let end = &mut ends[index];
            let sent = if end.endless { BYTES_PER_MS } else { end.unsent.min(BYTES_PER_MS) };
            end.unsent = end.unsent.saturating_sub(sent);
            let arrival = (now + ONE_WAY, Event::Received(Bytes::new(sent)));
            if let Some(other) = ends.get_mut(1 - index).filter(|_| sent > 0 && now < at(dead_ms)) {
                other.coming.push(arrival);
            }
        }
        ends.iter_mut().for_each(|end| results.extend(end.app.take_results(now)));
    }
    ends.iter_mut().for_each(|end| results.extend(end.app.conclude(at(ms))));
    (results, connections)
}

#[test]
fn requests_follow_each_other_after_a_think_time() {
    let app = app(
        r#"{"kind": "request-response", "response": "5000 B", "think": "100 ms", "requests": 3}"#,
    );
    let (results, connections) = run(&app, 2000, LATER);
    assert_eq!((results.len(), connections), (3, 1));
    // Connecting takes 20 ms, a round trip 20 ms, and five pieces of 1000 B arrive within 4 ms of the first.
    let took: Vec<_> = results.iter().map(|one| one.took.unwrap().as_micros() / 1000).collect();
    assert_eq!(took, [44, 24, 24]);
    assert_eq!(results[0].connect, Some(ONE_WAY * 2));
    assert_eq!(results[1].connect, None);
    assert_eq!(
        results[1].due,
        results[0].due + results[0].took.unwrap() + Duration::from_millis(100)
    );
    assert!(results.iter().all(|one| one.answered == Bytes::new(5000)));
    assert!(results.iter().all(|one| one.first_byte.unwrap() < one.took.unwrap()));
}

#[test]
fn a_connection_of_its_own_for_each_request_costs_a_handshake_each() {
    let app = app(
        r#"{"kind": "request-response", "response": "1 kB", "per_connection": 1, "requests": 4}"#,
    );
    let (results, connections) = run(&app, 2000, LATER);
    assert_eq!((results.len(), connections), (4, 4));
    assert!(results.iter().all(|one| one.connect == Some(ONE_WAY * 2)));
}

#[test]
fn both_ends_draw_the_same_sizes() {
    let app = app(r#"{"kind": "request-response", "per_connection": 7,
            "request": {"distribution": "uniform", "from": "100 B", "to": "900 B"},
            "response": {"distribution": "pareto", "least": "500 B", "shape": 1.3}}"#);
    let (results, connections) = run(&app, 20_000, LATER);
    assert!(results.len() > 200 && connections > 25, "{} {connections}", results.len());
    assert!(results.iter().all(|one| one.took.is_some()));
    let sizes: std::collections::BTreeSet<_> = results.iter().map(|one| one.answered).collect();
    assert!(sizes.len() > results.len() / 2, "{sizes:?}");
}

#[test]
fn what_is_not_answered_in_time_has_failed_and_is_tried_again() {
    let app = app(
        r#"{"kind": "request-response", "response": "1 kB", "think": "50 ms", "timeout": "400 ms"}"#,
    );
    let (results, _) = run(&app, 3000, 1000);
    let failed: Vec<_> = results.iter().filter(|one| one.took.is_none()).collect();
    assert!(failed.len() >= 3 && failed.iter().all(|one| one.due >= at(900)), "{failed:?}");
    assert!(results.is_sorted_by_key(|one| one.number));
}

fn chunks(results: &[Transaction]) -> Vec<ChunkRow> {
    let chunk = |one: &Transaction| match one.detail {
        Detail::Chunk(row) => Some(row),
        _ => None,
    };
    results.iter().filter_map(chunk).collect()
}

#[test]
fn a_player_asks_for_one_chunk_after_the_other_and_gets_as_many_bytes() {
    let app = app(r#"{"kind": "dash", "controller": "rate"}"#);
    app.check().unwrap();
    let (results, connections) = run(&app, 250_000, LATER);
    let rows = chunks(&results);
    assert_eq!((rows.len(), connections), (48, 1));
    for (number, (one, row)) in (0..).zip(results.iter().zip(&rows)) {
        assert_eq!((one.number, row.chunk, one.connection), (number.into(), number, 0));
        assert_eq!(
            (one.answered, one.due),
            (Bytes::new(row.size_bytes), Instant::from_nanos(row.asked_ns))
        );
        // Each chunk takes a round trip and 1 ms per piece; the first one also waits for the connection.
        let connects_ms = if number == 0 { 20 } else { 0 };
        let expected =
            Duration::from_millis(connects_ms + 20 + row.size_bytes.div_ceil(BYTES_PER_MS) - 1);
        assert_eq!(one.took, Some(expected), "{row:?}");
        assert_eq!(row.arrived_ns - row.asked_ns, expected.as_nanos());
    }
    // 8 Mbit/s carry the top track of 4.3 Mbit/s from the second chunk on.
    assert!(rows[1..].iter().all(|row| row.track == 5 && row.stall_ns == 0), "{rows:?}");
    assert!(rows.last().unwrap().waited_ns > 1_000_000_000, "its buffer is full");
}

#[test]
fn a_player_gives_up_what_comes_too_slowly_over_a_new_connection() {
    let keys = r#""controller": "bba", "start_track": 5, "top": "60 Mbit/s""#;
    let (patient, one) = run(&app(&format!(r#"{{"kind": "dash", {keys}}}"#)), 120_000, LATER);
    let (quitter, many) =
        run(&app(&format!(r#"{{"kind": "dash", {keys}, "abandon": true}}"#)), 120_000, LATER);
    // The first chunk takes longer than the timeout of a request.
    assert!(one >= 2 && many >= 2, "{one} {many}");
    assert!(chunks(&patient).iter().any(|row| row.abandoned_bytes > 0));
    let [slow, fast] = [patient, quitter].map(|results| chunks(&results)[0]);
    assert!(fast.abandoned_bytes > 0 && fast.track < 5, "{fast:?}");
    assert!(fast.arrived_ns < slow.arrived_ns / 2, "{fast:?} {slow:?}");
}

#[test]
fn a_player_whose_connection_is_dead_tries_again_until_its_time_is_over() {
    let app = app(r#"{"kind": "dash", "timeout": "2 s"}"#);
    let (results, connections) = run(&app, 30_000, 5_000);
    assert!((1..10).contains(&results.len()) && connections > 8, "{} {connections}", results.len());
}

#[test]
fn messages_are_due_at_even_times() {
    let app = app(r#"{"kind": "constant-rate", "rate": "80 kbit/s", "size": "500 B"}"#);
    let (results, _) = run(&app, 1000, LATER);
    // Messages are due every 50 ms; the last one has not arrived yet.
    assert_eq!(results.len(), 20);
    assert!(results.iter().zip(0..).all(|(one, number)| one.due == at(50 * number)));
    // The first message waits for the connection.
    assert_eq!(results[0].took, Some(ONE_WAY * 3));
    assert!(results[1..].iter().all(|one| one.took == Some(ONE_WAY)));
}

#[test]
fn bursts_are_as_long_as_they_are_said_to_be() {
    let endless = app(r#"{"kind": "on-off", "on": "200 ms", "off": "300 ms"}"#);
    let (results, _) = run(&endless, 2000, LATER);
    assert_eq!(results.len(), 3);
    assert!(results.iter().zip(0..).all(|(one, number)| one.due == at(500 * number)));
    assert_eq!(results[1].sent, Bytes::new(200 * BYTES_PER_MS));
    let paced = app(
        r#"{"kind": "on-off", "on": "200 ms", "off": "300 ms", "rate": "1 Mbit/s", "size": "500 B"}"#,
    );
    let (results, _) = run(&paced, 2000, LATER);
    assert_eq!(results[1].sent, Bytes::new(25_000));
}

#[test]
fn what_a_probe_sends_comes_back() {
    let app = app(r#"{"kind": "probe", "interval": "7 ms", "size": "200 B"}"#);
    let (results, connections) = run(&app, 700, LATER);
    // 100 packets were sent; those of the last round trip have not returned.
    assert_eq!((results.len(), connections), (98, 0));
    assert!(results.iter().zip(0..).all(|(one, number)| one.due == at(7 * number)));
    assert!(results.iter().zip(0..).all(|(one, number)| one.number == number));
    assert!(results.iter().all(|one| one.took == Some(ONE_WAY * 2)));
    // Nothing is delivered any more: the outcome of packets sent later is known only at the end.
    let (results, _) = run(&app, 700, 350);
    let lost = results.iter().filter(|one| one.took.is_none());
    assert!(lost.map(|one| one.due).eq((49..98).map(|number| at(7 * number))));
    assert_eq!(results.iter().filter(|one| one.took.is_some()).count(), 49);
}

/// Create a probe's client with an interval of 10 ms that has sent its first `sent` packets.
fn prober(sent: u64) -> Box<dyn Application> {
    let facts = FlowFacts { seed: 3, start: at(0), stop: at(1000) };
    let mut client = app(r#"{"kind": "probe"}"#).client(&facts);
    for number in 0..sent {
        let size = Bytes::new(64);
        assert_eq!(client.poll(at(10 * number)), Action::Send(Datagram { number, size }));
        assert_eq!(client.poll(at(10 * number)), Action::Wait(at(10 * number + 10)));
    }
    client
}

fn back(number: u64) -> Event {
    Event::Datagram(Datagram { number, size: Bytes::new(64) })
}

#[test]
fn a_probe_tells_of_its_packets_in_order_and_of_lost_ones_once_they_could_have_been_back() {
    let mut client = prober(4);
    let reported = |client: &mut Box<dyn Application>, now: u64| {
        let results = client.take_results(at(now)).into_iter();
        results.map(|one| (one.number, one.took.map(|rtt| rtt.as_micros()))).collect::<Vec<_>>()
    };
    client.on_event(at(32), back(2));
    client.on_known_loss(Side::Server, 1);
    assert_eq!(reported(&mut client, 33), [], "what became of the first is not known");
    client.on_event(at(35), back(0));
    assert_eq!(reported(&mut client, 36), [(0, Some(35_000))]);
    assert_eq!(reported(&mut client, 45), [], "it might be back at 45 ms as well");
    assert_eq!(reported(&mut client, 46), [(1, None), (2, Some(12_000))]);
    client.on_event(at(47), back(2));
    client.on_event(at(48), back(9));
    // The last packet was sent at 30 ms, and the longest round trip is 35 ms.
    assert_eq!(client.conclude(at(65)), []);
    let mut client = prober(1);
    let last = client.conclude(Instant::NEVER);
    assert_eq!((last.len(), last[0].due, last[0].took), (1, at(0), None));
}

#[test]
fn what_a_probe_has_missed_stays_missed() {
    let mut client = prober(2);
    let Action::Send(late) = client.poll(at(57)) else { panic!("it is due since 20 ms") };
    assert_eq!((late.number, client.poll(at(57))), (2, Action::Wait(at(60))));
    assert!(matches!(client.poll(at(990)), Action::Send(_)));
    assert_eq!(client.poll(at(1000)), Action::Wait(Instant::NEVER), "its time is over");
}

#[test]
fn what_cannot_be_is_refused_by_its_key() {
    let refused = |json: &str| app(json).check().unwrap_err().0;
    assert_eq!(refused(r#"{"kind": "constant-rate", "rate": "0 bit/s"}"#), "rate");
    assert_eq!(refused(r#"{"kind": "on-off", "on": "0 s", "off": "1 s"}"#), "on");
    assert_eq!(refused(r#"{"kind": "request-response", "response": "0 B"}"#), "response");
    assert_eq!(refused(r#"{"kind": "probe", "interval": "99 us"}"#), "interval");
    assert_eq!(refused(r#"{"kind": "probe", "size": "15 B"}"#), "size");
    assert_eq!(refused(r#"{"kind": "dash", "timeout": "0 s"}"#), "timeout");
    assert_eq!(refused(r#"{"kind": "dash", "buffer_cap": "0 s"}"#), "buffer_cap");
    assert_eq!(refused(r#"{"kind": "dash", "controller": "mpc-o"}"#), "controller");
    let unknown = read(r#"{"kind": "bulk", "byte": "1 kB"}"#).unwrap_err();
    assert!(unknown.to_string().contains("unknown field `byte`"), "{unknown}");
}
