//! Tests of pages, calls and films over constant paths, against arithmetic.

use skyhop_model::AppTable;
use skyhop_record::{AppDetail, RunData};
use skyhop_video::ChunkRow;

use crate::scenario::{experiment, fixed, simulate};

/// Time of `bytes` of TCP payload on a link of so many Mbit/s.
fn on_the_wire_ms(bytes: f64, rate_mbit: f64) -> f64 {
    bytes / 1448.0 * 1514.0 * 8.0 / (rate_mbit * 1e3)
}

fn page_load_ms(keys: &str) -> f64 {
    let app = format!("[[flow]]\napp = {{ kind = \"page\", pages = 1, handshakes = 0, {keys} }}");
    let run = simulate(&fixed(20, 40, 250_000, 5, &app));
    let [page] = &run.apps[&AppTable::Pages][..] else { panic!("one page") };
    page.latency_ns.unwrap() as f64 / 1e6
}

#[test]
fn a_page_takes_its_round_trips_and_what_slow_start_sends_last() {
    // A connection, a document and an object, each within the first window.
    let small = page_load_ms(r#"document = "10 kB", objects = 1, size = "10 kB", connections = 1"#);
    let expected = 3.0 * 40.0 + 2.0 * on_the_wire_ms(10e3, 20.0);
    assert!((small - expected).abs() < 1.0, "{small} ms, not {expected}");
    // 10, 20 and 40 segments: two more round trips, and at least the last window's, at most the document's time on
    // the wire.
    let large = page_load_ms(r#"document = "100 kB", objects = 0, connections = 1"#);
    let least = 4.0 * 40.0 + on_the_wire_ms(100e3 - 30.0 * 1448.0, 20.0);
    let most = 4.0 * 40.0 + on_the_wire_ms(100e3, 20.0);
    assert!((least - 1.0..most).contains(&large), "{large} ms, not {least} to {most}");
}

#[test]
fn a_call_is_heard_after_the_path_and_a_packet_on_the_wire() {
    let call = "[[flow]]\nkind = \"call\"\nvideo = \"0 bit/s\"\n";
    let run = simulate(&fixed(2, 300, 100_000, 5, call));
    // 160 B of speech, 12 B of RTP, 28 B of UDP and IP, 14 B of Ethernet.
    let delay_ms: f64 = 150.0 + 214.0 * 8.0 / 2e3;
    // 20 ms of speech per packet, then the path and the jitter buffer.
    let x = ((20.0 + delay_ms + 60.0) / 100.0).log2();
    let root = |value: f64| (1.0 + value.powi(6)).powf(1.0 / 6.0);
    let r = 93.2 - 25.0 * (root(x) - 3.0 * root(x / 3.0) + 2.0);
    let mos = 1.0 + 0.035 * r + r * (r - 60.0) * (100.0 - r) * 7e-6;
    let rows = &run.apps[&AppTable::Calls];
    assert!(rows.len() >= 8, "{}", rows.len());
    for row in rows {
        let AppDetail::Call(call) = &row.detail else { panic!("{row:?}") };
        let lost = (call.audio_late, call.audio_lost, call.video_frames);
        assert_eq!(lost, (0, 0, 0), "{call:?}");
        let delay = call.delay_ns.unwrap() as f64 / 1e6;
        assert!((delay - delay_ms).abs() < 0.01, "{delay} ms, not {delay_ms}");
        assert!((call.mos - mos).abs() < 0.001, "{} instead of {mos}", call.mos);
    }
}

fn chunks(run: &RunData) -> Vec<ChunkRow> {
    let rows = run.apps[&AppTable::Chunks].iter();
    rows.map(|row| match &row.detail {
        AppDetail::Chunk(chunk) => *chunk,
        other => panic!("{other:?}"),
    })
    .collect()
}

fn film(rate_mbit: u32, seconds: u32, keys: &str) -> String {
    let app = format!("[[flow]]\napp = {{ kind = \"dash\", {keys} }}\n");
    fixed(rate_mbit, 40, 100_000, seconds, &app)
}

/// Expected time of a chunk's request and its answer once the window is open.
fn expected_ms(row: &ChunkRow, rate_mbit: f64) -> f64 {
    40.0 + on_the_wire_ms(row.size_bytes as f64, rate_mbit)
}

fn took_ms(row: &ChunkRow) -> f64 {
    (row.arrived_ns - row.asked_ns) as f64 / 1e6
}

#[test]
fn a_film_below_the_rate_has_the_track_that_fits_and_never_stalls() {
    let rows = chunks(&simulate(&film(2, 60, "controller = \"rate\"")));
    assert!(rows.len() > 12, "{}", rows.len());
    // 0.9 of some 1.9 Mbit/s allows the track of 1.2, not that of 1.85.
    assert!(rows[1..].iter().all(|row| row.bitrate_bps == 1_200_000 && row.stall_ns == 0));
    for row in &rows[1..] {
        let (took, expected) = (took_ms(row), expected_ms(row, 2.0));
        assert!((took - expected).abs() < 40.0, "{took} ms, not {expected}: {row:?}");
    }
}

#[test]
fn a_film_above_the_rate_stalls_for_what_its_chunks_take_too_long() {
    // The lowest of six tracks needs 3 Mbit/s.
    let rows = chunks(&simulate(&film(
        2,
        60,
        "controller = \"rate\", top = \"43 Mbit/s\", start_track = 0",
    )));
    assert!(rows.len() > 6, "{}", rows.len());
    for row in &rows[1..] {
        assert_eq!(row.bitrate_bps, 3_000_000);
        let (took, expected) = (took_ms(row), expected_ms(row, 2.0));
        assert!((took - expected).abs() < 40.0, "{took} ms, not {expected}: {row:?}");
        assert!((row.stall_ns as f64 / 1e6 - (took - 4000.0)).abs() < 1e-3, "{row:?}");
    }
}

#[test]
fn an_oracle_tells_of_a_drop_that_past_chunks_do_not_show() {
    let change = "[[change]]\nat = \"40 s\"\nrate = \"600 kbit/s\"\n";
    let play = |keys: &str| {
        let text = film(6, 150, &format!("{keys}, buffer_cap = \"16 s\"")) + change;
        chunks(&simulate(&text))
    };
    let stalled_s =
        |rows: &[ChunkRow]| rows.iter().map(|row| row.stall_ns).sum::<u64>() as f64 / 1e9;
    let told = play("controller = \"mpc-o\", predicted = { oracle = {} }");
    let own = play("controller = \"mpc-d\"");
    assert!(stalled_s(&told) + 1.0 < stalled_s(&own), "{} {}", stalled_s(&told), stalled_s(&own));
    // The prediction for a chunk equals its measured rate, except for slow start.
    for row in told.iter().skip(3).filter(|row| row.arrived_ns < 40_000_000_000) {
        let believed = row.predicted_bps.unwrap() as f64;
        assert!((believed / row.throughput_bps() - 1.0).abs() < 0.1, "{row:?}");
    }
    // The prediction is wrong by the configured error.
    let high = play("controller = \"mpc-o\", predicted = { oracle = { mean_error = 0.5 } }");
    let ratio = high[1].predicted_bps.unwrap() as f64 / told[1].predicted_bps.unwrap() as f64;
    assert!((1.35..1.65).contains(&ratio), "{ratio}");
    let erring = "controller = \"mpc-l\", predicted = { oracle = { relative_sd = 0.5, seed = 3 } }";
    assert_eq!(play(erring), play(erring));
    assert_ne!(play(erring), play(&erring.replace("seed = 3", "seed = 4")));
}

#[test]
fn with_pensieves_habits_a_player_waits_in_steps_of_half_a_second() {
    let rows = chunks(&simulate(&film(
        20,
        60,
        "compat = \"pensieve\", controller = \"bba\", buffer_cap = \"8 s\"",
    )));
    let waits = rows.iter().map(|row| row.waited_ns).filter(|ns| *ns > 0);
    let waits: Vec<u64> = waits.collect();
    assert!(waits.len() > 5 && waits.iter().all(|ns| ns % 500_000_000 == 0), "{waits:?}");
}

#[test]
fn predicted_rates_of_zero_are_refused() {
    let text = film(2, 10, "controller = \"mpc-o\", predicted = { oracle = {} }")
        + "[[change]]\nat = \"0 s\"\noutage = \"10 s\"\n";
    let no_places = |name: &str| Err(format!("no place {name}"));
    let scenario = skyhop_scenario::parse_scenario(&text, "x.toml", &[]).unwrap();
    let go_on = &mut |_, _| std::ops::ControlFlow::Continue(());
    let error = scenario.experiment(&no_places, go_on).unwrap_err().to_string();
    assert!(
        error.starts_with("x.toml: flow.0.app.predicted: ") && error.contains("0 bit/s throughout"),
        "{error}"
    );
    drop(experiment(&text.replace("outage = \"10 s\"", "outage = \"9 s\"")));
}
