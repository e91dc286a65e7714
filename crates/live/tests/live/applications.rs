//! Tests of applications over TCP on the kernel's own stack.

use skyhop_app::{Action, App, AppKind as _, Event, FlowFacts, TcpOptions};
use skyhop_engine::{Control, Engine};
use skyhop_experiment::{Experiment, seed_for};
use skyhop_link::Outage;
use skyhop_live::{LiveEngine, LiveOptions};
use skyhop_model::{AppTable, Direction, End};
use skyhop_record::{AppRow, AppSummary};
use skyhop_units::{Bytes, Duration, Instant};

use crate::lab::{self, LiveOutcome, app, application, at, fixed, mbit, median, ms};

const MS: i64 = 1_000_000;

fn options(json: &str) -> TcpOptions {
    serde_json::from_str(json).expect("socket options")
}

/// Run an application alone on a path of 10 ms each way and 100 Mbit/s, once per device kind.
fn alone_on_the_path(
    app: &App,
    options: TcpOptions,
    duration: Duration,
    check: impl Fn(&Experiment, &LiveOutcome),
) {
    for device in lab::devices() {
        let mut experiment = fixed(ms(10), mbit(100), duration);
        experiment.device = device;
        experiment.flows.push(application(3, End::From, "cubic", app.clone(), options));
        let Some(outcome) = lab::run(&experiment) else { continue };
        every_packet_is_accounted_for(&outcome);
        check(&experiment, &outcome);
    }
}

fn every_packet_is_accounted_for(outcome: &LiveOutcome) {
    for count in outcome.packets {
        assert_eq!(count.inside, 0, "the link has run empty: {count:?}");
        assert_eq!(count.device_sent, count.enqueued, "{count:?}");
        assert_eq!(count.enqueued, count.delivered + count.dropped, "{count:?}");
        assert_eq!(count.delivered, count.device_received + count.refused, "{count:?}");
    }
}

fn rows(outcome: &LiveOutcome, table: AppTable) -> &[AppRow] {
    outcome.data.apps.get(&table).map_or(&[], Vec::as_slice)
}

fn summary(outcome: &LiveOutcome) -> &AppSummary {
    &outcome.data.summary.apps[0]
}

fn near(what: &str, ns: i64, from_ms: i64, to_ms: i64) {
    assert!((from_ms * MS..to_ms * MS).contains(&ns), "{what}: {} us", ns / 1000);
}

fn latencies(rows: &[AppRow]) -> Vec<i64> {
    rows.iter().filter_map(|row| row.latency_ns).collect()
}

/// Sizes of the answers that the server of flow 3 draws for a connection.
fn answers(experiment: &Experiment, app: &App, connection: u32, count: usize) -> Vec<i64> {
    let seed = seed_for(experiment.seed, "app 3");
    let stop = Instant::START + experiment.duration;
    let mut server = app.server(&FlowFacts { seed, start: Instant::START, stop }, connection);
    let answer = |_| {
        server.on_event(Instant::START, Event::Received(Bytes::new(1 << 40)));
        match server.poll(Instant::START) {
            Action::Write(bytes) => bytes.as_u64() as i64,
            other => panic!("{other:?} is not an answer"),
        }
    };
    (0..count).map(answer).collect()
}

fn thirty_requests() -> App {
    app(r#"{"kind": "request-response", "think": "20 ms", "requests": 30,
        "response": {"distribution": "uniform", "from": "1 kB", "to": "14 kB"}}"#)
}

#[test]
fn requests_over_one_connection_follow_each_other() {
    let app = thirty_requests();
    alone_on_the_path(&app, TcpOptions::default(), ms(1500), |experiment, outcome| {
        let rows = rows(outcome, AppTable::Requests);
        assert_eq!((summary(outcome).completed, summary(outcome).failed), (rows.len() as u64, 0));
        assert!(rows.iter().zip(0..).all(|(row, seq)| (row.seq, row.connection) == (seq, 0)));
        assert!(rows.iter().all(|row| row.flow == 3 && row.sent_bytes == 300));
        let sizes: Vec<i64> = rows.iter().map(|row| row.answered_bytes).collect();
        assert_eq!(sizes, answers(experiment, &app, 0, rows.len()));
        assert!(rows[0].connect_ns.is_some_and(|ns| ns >= 20 * MS));
        assert!(rows[1..].iter().all(|row| row.connect_ns.is_none()));
        // Each request is due after the previous answer and the think time.
        assert!(rows.windows(2).zip(latencies(rows)).all(|(pair, latency)| {
            pair[1].t_ns == pair[0].t_ns + latency + 20 * MS
                && (20 * MS..=latency).contains(&pair[0].first_byte_ns.unwrap().min(latency))
        }));
        // The goodput is that of the answers, including an incomplete last one; the window is the server's.
        let flow = &outcome.data.summary.flows[0];
        let bytes = flow.goodput_bps as f64 / 8.0 * (flow.stop_s - flow.start_s);
        let whole = sizes.iter().sum::<i64>() as f64;
        assert!((whole - 2.0..whole + 14_002.0).contains(&bytes), "{bytes} B of {whole}");
        assert!(flow.sent_packets >= rows.len() as u64, "{flow:?}");
        assert!(flow.srtt_mean_us >= Some(20_000), "{flow:?}");
    });
}

#[test]
#[ignore = "soak: measures time"]
fn requests_over_one_connection_take_a_round_trip_each() {
    alone_on_the_path(&thirty_requests(), TcpOptions::default(), ms(2500), |_, outcome| {
        assert_eq!((summary(outcome).completed, summary(outcome).failed), (30, 0));
        let rows = rows(outcome, AppTable::Requests);
        near("the median latency", median(latencies(rows)), 20, 25);
    });
}

fn twenty_connections() -> App {
    app(r#"{"kind": "request-response", "per_connection": 1, "requests": 20,
        "request": {"distribution": "exponential", "mean": "400 B"}, "response": "10 kB"}"#)
}

#[test]
fn each_request_has_a_connection_of_its_own() {
    alone_on_the_path(&twenty_connections(), TcpOptions::default(), ms(1200), |_, outcome| {
        let rows = rows(outcome, AppTable::Requests);
        assert_eq!((summary(outcome).completed, summary(outcome).failed), (rows.len() as u64, 0));
        assert!(!rows.is_empty());
        assert!(rows.iter().all(|row| i64::from(row.connection) == row.seq));
        assert!(rows.iter().all(|row| row.connect_ns.is_some_and(|ns| ns >= 20 * MS)));
        let flow = &outcome.data.summary.flows[0];
        let bytes = flow.goodput_bps as f64 / 8.0 * (flow.stop_s - flow.start_s);
        let whole = rows.len() as f64 * 10_000.0;
        assert!((whole - 2.0..whole + 10_002.0).contains(&bytes), "{bytes} B of {whole}");
    });
}

#[test]
#[ignore = "soak: measures time"]
fn a_connection_for_each_request_costs_a_handshake_each() {
    alone_on_the_path(&twenty_connections(), TcpOptions::default(), ms(1800), |_, outcome| {
        let rows = rows(outcome, AppTable::Requests);
        assert_eq!((summary(outcome).completed, summary(outcome).failed), (20, 0));
        let sizes: std::collections::BTreeSet<i64> =
            rows.iter().map(|row| row.sent_bytes).collect();
        assert!(sizes.len() > 15, "{sizes:?}");
        let flow = &outcome.data.summary.flows[0];
        let bytes = flow.goodput_bps as f64 / 8.0 * (flow.stop_s - flow.start_s);
        assert!((bytes - 200_000.0).abs() < 2.0, "{bytes} B over all connections");
        assert!((140..200).contains(&flow.sent_packets), "{flow:?}");
        near("the median latency", median(latencies(rows)), 40, 46);
    });
}

/// Experiment with requests that time out after 300 ms, over a path with an outage.
fn into_an_outage(from_ms: u64, until_ms: u64, end_ms: u64) -> Experiment {
    let mut experiment = fixed(ms(10), mbit(100), ms(end_ms));
    let outage = Outage { from: at(from_ms), until: at(until_ms) };
    experiment.links[0].forward.schedule.outages.push(outage);
    let app = app(r#"{"kind": "request-response", "response": "5 kB", "think": "50 ms",
        "timeout": "300 ms"}"#);
    experiment.flows.push(application(3, End::From, "cubic", app, TcpOptions::default()));
    experiment
}

fn failed(rows: &[AppRow]) -> Vec<&AppRow> {
    rows.iter().filter(|row| row.latency_ns.is_none()).collect()
}

#[test]
fn a_request_that_fails_ends_its_connection() {
    let experiment = into_an_outage(300, 1000, 1200);
    let Some(outcome) = lab::run(&experiment) else { return };
    every_packet_is_accounted_for(&outcome);
    let rows = rows(&outcome, AppTable::Requests);
    assert_eq!(summary(&outcome).failed, failed(rows).len() as u64);
    assert!(!failed(rows).is_empty());
    let before = rows[..rows.len() - 1].iter().filter(|row| row.latency_ns.is_none()).count();
    assert_eq!(rows.last().unwrap().connection as usize, before, "{rows:?}");
}

#[test]
#[ignore = "soak: measures time"]
fn requests_into_an_outage_fail_and_others_follow_once_it_is_over() {
    for device in lab::devices() {
        let experiment = Experiment { device, ..into_an_outage(1000, 2500, 4000) };
        let Some(outcome) = lab::run(&experiment) else { continue };
        every_packet_is_accounted_for(&outcome);
        let rows = rows(&outcome, AppTable::Requests);
        let failed = failed(rows);
        // One failure per 400 ms: the timeout of 300 ms, and 100 ms before the next attempt.
        assert!((3..=5).contains(&failed.len()), "{failed:?}");
        assert!(failed.iter().all(|row| (900 * MS..2500 * MS).contains(&row.t_ns)), "{failed:?}");
        assert!(failed[1..].iter().all(|row| row.connect_ns.is_none() && row.answered_bytes == 0));
        let after = rows.iter().filter(|row| row.t_ns > 3000 * MS);
        assert!(after.filter(|row| row.latency_ns.is_some()).count() > 5, "{rows:?}");
        assert!(rows.last().unwrap().connection as usize == failed.len());
    }
}

fn messages() -> App {
    app(r#"{"kind": "constant-rate", "rate": "100 kbit/s", "size": "500 B"}"#)
}

#[test]
fn messages_are_due_at_even_distances_and_none_comes_before_its_time() {
    alone_on_the_path(&messages(), TcpOptions::default(), ms(1000), |_, outcome| {
        let rows = rows(outcome, AppTable::Messages);
        assert!((1..=25).contains(&rows.len()), "{} messages", rows.len());
        assert!(rows.iter().zip(0..).all(|(row, seq)| (row.seq, row.t_ns) == (seq, seq * 40 * MS)));
        assert!(rows.iter().all(|row| row.sent_bytes == 500));
        assert!(latencies(rows).iter().all(|ns| *ns >= 10 * MS));
    });
}

#[test]
#[ignore = "soak: measures time"]
fn messages_take_the_one_way_delay() {
    alone_on_the_path(&messages(), TcpOptions::default(), ms(2000), |_, outcome| {
        let rows = rows(outcome, AppTable::Messages);
        // The last message arrives before the end.
        assert!((49..=50).contains(&rows.len()), "{} messages", rows.len());
        near("the first, which waits for the connection", rows[0].latency_ns.unwrap(), 30, 60);
        near("the median", median(latencies(rows)), 10, 15);
    });
}

fn bursts() -> App {
    app(r#"{"kind": "on-off", "on": "200 ms", "off": "300 ms", "rate": "2 Mbit/s",
        "size": "1 kB"}"#)
}

/// Allow smaller bursts, because a thread without CPU time at a burst's end skips the messages due then.
#[test]
fn bursts_are_due_one_after_the_other_and_no_larger_than_asked() {
    let mut experiment = fixed(ms(10), mbit(100), ms(1300));
    let options = options(r#"{"nodelay": true}"#);
    experiment.flows.push(application(3, End::From, "cubic", bursts(), options));
    let Some(outcome) = lab::run(&experiment) else { return };
    let rows = rows(&outcome, AppTable::Bursts);
    assert!(!rows.is_empty());
    assert!(rows.iter().zip(0..).all(|(row, seq)| (row.seq, row.t_ns) == (seq, seq * 500 * MS)));
    for row in rows {
        assert!((1000..=50_000).contains(&row.sent_bytes) && row.sent_bytes % 1000 == 0, "{row:?}");
    }
}

#[test]
#[ignore = "soak: measures time"]
fn bursts_come_when_they_are_due() {
    alone_on_the_path(&bursts(), options(r#"{"nodelay": true}"#), ms(2100), |_, outcome| {
        let rows = rows(outcome, AppTable::Bursts);
        assert_eq!(rows.len(), 4);
        let sizes: Vec<i64> = rows.iter().map(|row| row.sent_bytes).collect();
        assert_eq!(sizes[1..], [50_000; 3]);
        // The last message is written 196 ms after the first, and takes 10 ms.
        rows[1..].iter().for_each(|row| near("a burst", row.latency_ns.unwrap(), 206, 214));
    });
}

#[test]
#[ignore = "soak: measures time"]
fn bursts_without_a_rate_fill_the_link_and_leave_it_empty_between() {
    let mut experiment = fixed(ms(5), mbit(20), ms(2100));
    experiment.sample = ms(50);
    let app = app(r#"{"kind": "on-off", "on": "400 ms", "off": "600 ms"}"#);
    experiment.flows.push(application(3, End::From, "cubic", app, TcpOptions::default()));
    let Some(outcome) = lab::run(&experiment) else { return };
    every_packet_is_accounted_for(&outcome);
    let rows = rows(&outcome, AppTable::Bursts);
    let mbits: Vec<f64> = rows.iter().map(|row| row.sent_bytes as f64 * 8.0 / 1e6).collect();
    // 20 Mbit/s for 400 ms, plus the data queued in the socket at the end of the burst.
    assert_eq!(rows.len(), 2);
    assert!(mbits.iter().all(|mbit| (4.0..14.0).contains(mbit)), "{mbits:?} Mbit in the bursts");
    let silent = outcome.data.flows.iter().filter(|row| {
        (850..950).contains(&(row.t_ns / MS)) || (1850..1950).contains(&(row.t_ns / MS))
    });
    let busy: Vec<_> = silent.filter(|row| row.goodput_bps > 0).collect();
    assert!(busy.is_empty(), "{busy:?}");
}

#[test]
#[ignore = "soak: measures time"]
fn a_slow_reader_holds_the_sender_back_and_not_the_link() {
    for device in lab::devices() {
        let mut experiment = fixed(ms(20), mbit(50), ms(4000));
        experiment.device = device;
        let app = app(r#"{"kind": "bulk", "read_rate": "5 Mbit/s"}"#);
        let options = options(r#"{"receive_buffer": "100 kB"}"#);
        experiment.flows.push(application(3, End::From, "cubic", app, options));
        let Some(outcome) = lab::run(&experiment) else { return };
        every_packet_is_accounted_for(&outcome);
        let flow = &outcome.data.summary.flows[0];
        // Data received but not read fills the buffer.
        let mbps = flow.goodput_bps as f64 / 1e6;
        let waiting: Vec<i64> = (outcome.data.link.iter())
            .filter(|row| row.direction == Direction::Forward && row.t_ns > 1000 * MS)
            .map(|row| row.backlog_bytes)
            .collect();
        let most = waiting.iter().max().copied().unwrap_or_default();
        assert!((4.5..5.6).contains(&mbps) && flow.retransmits == 0, "{flow:?}");
        assert!(most < 60_000, "{most} B waited");
    }
}

#[test]
#[ignore = "soak: measures time"]
fn small_messages_wait_for_others_unless_told_otherwise() {
    let median_ms = |delay: Duration, rate: &str, options: TcpOptions| {
        let mut experiment = fixed(delay, mbit(100), ms(2000));
        let json = format!(r#"{{"kind": "constant-rate", "rate": "{rate}", "size": "100 B"}}"#);
        experiment.flows.push(application(3, End::From, "cubic", app(&json), options));
        let outcome = lab::run(&experiment)?;
        let rows = rows(&outcome, AppTable::Messages);
        Some(median(rows.iter().filter_map(|row| row.latency_ns).collect()) as f64 / MS as f64)
    };
    let (nodelay, cork) = (options(r#"{"nodelay": true}"#), options(r#"{"cork": true}"#));
    // Nagle: a message every 5 ms, but only one segment per round trip of 80 ms.
    let Some(nagle) = median_ms(ms(40), "160 kbit/s", TcpOptions::default()) else { return };
    let at_once = median_ms(ms(40), "160 kbit/s", nodelay).expect("as the first");
    // Cork: a message every 50 ms, held up to 200 ms for others to join; Nagle delays none of them.
    let corked = median_ms(ms(10), "16 kbit/s", cork).expect("as the first");
    let alone = median_ms(ms(10), "16 kbit/s", TcpOptions::default()).expect("as the first");
    assert!((40.0..44.0).contains(&at_once) && (60.0..130.0).contains(&nagle), "{at_once} {nagle}");
    assert!((10.0..14.0).contains(&alone) && (60.0..210.0).contains(&corked), "{alone} {corked}");
}

#[test]
#[ignore = "soak: takes long"]
fn idle_connections_are_probed_where_asked_for() {
    let app = app(r#"{"kind": "constant-rate", "rate": "1 kbit/s", "size": "1 kB"}"#);
    let delivered = |options: TcpOptions| {
        let mut experiment = fixed(ms(10), mbit(100), ms(3500));
        experiment.flows.push(application(3, End::From, "cubic", app.clone(), options));
        let outcome = lab::run(&experiment)?;
        every_packet_is_accounted_for(&outcome);
        Some(outcome.packets.map(|count| count.delivered))
    };
    let Some(without) = delivered(TcpOptions::default()) else { return };
    let keepalive = r#"{"keepalive": {"time": "500 ms", "interval": "500 ms", "probes": 5}}"#;
    let with = delivered(options(keepalive)).expect("as the first");
    // The timing probe's packets are the same in both runs; both ends send keep-alive probes each second and answer them.
    assert!(with[0] >= without[0] + 3 && with[1] >= without[1] + 3, "{with:?} {without:?}");
}

#[test]
fn the_client_is_where_the_flow_comes_from() {
    let mut experiment = fixed(ms(10), mbit(50), ms(1200));
    let app = app(r#"{"kind": "request-response", "response": "100 kB"}"#);
    experiment.flows.push(application(3, End::To, "cubic", app, TcpOptions::default()));
    let Some(outcome) = lab::run(&experiment) else { return };
    let delivered = |direction: Direction| -> i64 {
        let rows = outcome.data.link.iter().filter(|row| row.direction == direction);
        rows.map(|row| row.delivered_bytes).sum()
    };
    let (answers, requests) = (delivered(Direction::Forward), delivered(Direction::Back));
    assert!(answers > 10 * requests && requests > 0, "{answers} B forward, {requests} B back");
    assert!(summary(&outcome).completed > 0 && summary(&outcome).failed == 0);
    assert!(outcome.data.summary.flows[0].goodput_bps > 0);
}

/// Caller that interrupts the run after 700 ms.
struct Brief(Duration);

impl Control for Brief {
    fn progress(&mut self, elapsed: Duration, _total: Duration) {
        self.0 = elapsed;
    }

    fn interrupted(&mut self) -> bool {
        self.0 >= ms(700)
    }
}

#[test]
fn an_interrupted_run_keeps_the_results_of_its_applications() {
    let mut experiment = fixed(ms(10), mbit(50), ms(60_000));
    let ask = app(r#"{"kind": "request-response", "response": "10 kB", "per_connection": 2}"#);
    let slow = app(r#"{"kind": "bulk", "read_rate": "1 Mbit/s"}"#);
    experiment.flows.push(application(0, End::From, "cubic", ask, TcpOptions::default()));
    experiment.flows.push(application(1, End::From, "cubic", slow, TcpOptions::default()));
    let result = lab::live(&experiment, &LiveOptions::default(), &mut Brief(Duration::ZERO));
    let Some(result) = lab::allowed(result) else { return };
    let outcome = result.expect("what was measured");
    assert!(outcome.interrupted && outcome.data.summary.virtual_s < 60.0);
    every_packet_is_accounted_for(&outcome);
    let rows = rows(&outcome, AppTable::Requests);
    assert!(!rows.is_empty() && summary(&outcome).completed == rows.len() as u64, "{rows:?}");
    assert!(outcome.data.summary.flows.iter().all(|flow| flow.goodput_bps > 0));
}

#[test]
fn socket_options_that_linux_does_not_take_are_refused_by_their_keys() {
    let refused = |json: &str| {
        let mut experiment = fixed(ms(10), mbit(50), ms(1000));
        let (app, options) = (App::default(), options(json));
        experiment.flows.push(application(3, End::From, "cubic", app, options));
        LiveEngine::default().check(&experiment).expect_err("it cannot be").to_string()
    };
    for (json, key) in [
        (r#"{"receive_buffer": "2 GB"}"#, "flow 3: tcp.receive_buffer"),
        (r#"{"keepalive": {"time": "10 h"}}"#, "flow 3: tcp.keepalive.time"),
        (r#"{"keepalive": {"interval": "10 h"}}"#, "flow 3: tcp.keepalive.interval"),
        (r#"{"keepalive": {"probes": 200}}"#, "flow 3: tcp.keepalive.probes"),
    ] {
        let message = refused(json);
        assert!(message.starts_with(key), "{message}");
    }
}
