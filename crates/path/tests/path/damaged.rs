//! Randomly damaged files of other tools and of skyhop.

use skyhop_needs::fuzz::{Trial, check_line};
use skyhop_path::OutageModel;
use skyhop_path::export::write_csv;
use skyhop_path::import::{
    ImportError, Imported, LeoemLogOptions, MeasuredOptions, ROUND_TRIP_FORMATS, parse_atlas,
    parse_csv, parse_iperf3, parse_irtt, parse_leocc, parse_leocc_delays, parse_leoem_log,
    parse_mahimahi, parse_ping, parse_round_trips,
};
use skyhop_units::{Duration, QuantityError};

use crate::field_logs::ATLAS;
use crate::leoem_log::LOG;
use crate::measured::{IRTT, PING, THROUGHPUT, WINDOWS_PING};

const ROUND_TRIPS: &str = "host,RTT (ms),Timestamp\nx,20,1700000000.0\nx,*,\nx,30,1700000000.1\n";
const DATED: &str = "date;latency_us\n2023-11-14T22:13:20Z;20000,5\n2023-11-14 22:13:20.1;30000\n";
const PLAIN: &str = "unix_ns,rtt_ms\n1700000000000000000,20.5\n1700000000020000000,20.25\n";

const WAYS: &str =
    "timestamp,rtt,uplink,downlink\n1700000000000000000,30,18,12\n1700000000010000000,0,0,-1\n";
const RATES: &str = "\"time\",\"dl_mbps\"\n\"2026-05-27 11:18:48,5\",80.5\n1779880729,40\n";

/// Check that a parsed path is valid, and equal after writing and reading it.
fn check(read: Result<Imported, ImportError>) -> Result<(), String> {
    let Imported { trace, account } = read.map_err(|error| error.to_string())?;
    check_line(&account.to_string());
    assert_eq!(trace.validate(), Ok(()));
    let mut written = Vec::new();
    write_csv(&trace, &mut written).expect("memory can be written");
    let again = parse_csv(&written[..], &MeasuredOptions::default());
    assert_eq!(again.expect("we wrote it").trace, trace);
    Ok(())
}

fn options() -> MeasuredOptions {
    MeasuredOptions::default()
}

#[test]
fn pings() {
    let read = |bytes: &[u8]| check(parse_ping(bytes, &options()));
    let unstamped: String = PING
        .lines()
        .map(|line| line.rsplit("] ").next().unwrap_or(line).to_owned() + "\n")
        .collect();
    Trial::of_text("ping", [PING.to_owned(), unstamped]).run(read);
    Trial::of_text("windows ping", [WINDOWS_PING]).run(read);
}

#[test]
fn irtt_logs() {
    Trial::of_text("irtt", [IRTT]).run(|bytes| check(parse_irtt(bytes, &options())));
}

#[test]
fn atlas_results() {
    Trial::of_text("atlas", [ATLAS]).run(|bytes| check(parse_atlas(bytes, &options())));
}

#[test]
fn iperf3_reports() {
    let report = r#"{"start": {"connected": [], "timestamp": {"timesecs": 1700000000},
        "test_start": {"protocol": "UDP", "reverse": 0}},
        "intervals": [{"sum": {"start": 0, "end": 1.5, "bits_per_second": 1e7, "sender": true},
        "sum_bidir_reverse": {"start": 0, "end": 1.5, "bits_per_second": 2e7, "sender": false}}],
        "end": {"sum": {"bits_per_second": 1e9, "lost_percent": 98}}}"#;
    let event = r#"{"event": "start", "data": {"timestamp": {"timesecs": 1700000000}}}
        {"event": "interval", "data": {"sum": {"start": 0, "end": 1, "bits_per_second": 2e7}}}"#;
    Trial::of_text("iperf3", [report, event]).run(|bytes| check(parse_iperf3(bytes, &options())));
}

#[test]
fn rows_of_numbers() {
    let read = |bytes: &[u8]| check(parse_csv(bytes, &options()));
    Trial::of_text("csv of round trips", [ROUND_TRIPS, DATED, PLAIN, WAYS, RATES]).run(read);
    Trial::of_text("csv of throughput", [THROUGHPUT]).run(read);
}

#[test]
fn our_own_rows() {
    let mut ours = Vec::new();
    let trace = parse_ping(PING.as_bytes(), &options()).expect("it is whole").trace;
    write_csv(&trace, &mut ours).expect("memory can be written");
    let mut computed = Vec::new();
    let trace = parse_leoem_log(LOG.as_bytes(), &LeoemLogOptions::default()).expect("it is whole");
    write_csv(&trace, &mut computed).expect("memory can be written");
    let read = |bytes: &[u8]| check(parse_csv(bytes, &options()));
    Trial::of_text("csv of a path", [ours, computed]).run(read);
}

#[test]
fn deliveries_and_delays() {
    let deliveries = "1\n2\n2\n3\n25\n";
    let rtt = Some(Duration::from_millis(50));
    let given = MeasuredOptions { rtt, ..options() };
    Trial::of_text("mahimahi", [deliveries]).run(|bytes| check(parse_mahimahi(bytes, &given)));
    let delays = [Duration::from_millis(20); 100];
    let read = |bytes: &[u8]| check(parse_leocc(bytes, &delays, &options()));
    Trial::of_text("leocc", [deliveries]).run(read);
    Trial::of_text("leocc delays", ["10\n12.5\n11\n"]).run(|bytes| {
        let delays = parse_leocc_delays(bytes).map_err(|error| error.to_string())?;
        check(parse_leocc(deliveries.as_bytes(), &delays, &options()))
    });
}

#[test]
fn leoem_logs() {
    let read = |bytes: &[u8]| {
        check(
            parse_leoem_log(bytes, &LeoemLogOptions::default())
                .map(|trace| Imported::whole(trace, "frames")),
        )
    };
    Trial::of_text("leoem", [LOG]).run(read);
}

#[test]
fn round_trips_for_estimates() {
    let samples = [PING, WINDOWS_PING, IRTT, ROUND_TRIPS, DATED, PLAIN];
    Trial::of_text("round trips", samples).run(|bytes| {
        let of = |format: &&str| parse_round_trips(bytes, format).map(drop);
        let read: Vec<_> = ROUND_TRIP_FORMATS.iter().map(of).collect();
        if read.iter().any(Result::is_ok) {
            return Ok(());
        }
        read.into_iter().collect::<Result<(), _>>()
    });
}

#[test]
fn outages() {
    Trial::of_text("outages", ["starlink", "leoem", "none", "80 ms"]).run(|bytes| {
        let text = std::str::from_utf8(bytes).map_err(|error| error.to_string())?;
        let read: OutageModel = text.parse().map_err(|error: QuantityError| error.to_string())?;
        let again: OutageModel = read.to_string().parse().expect("we wrote it");
        assert_eq!(again.to_string(), read.to_string());
        Ok::<(), String>(())
    });
}
