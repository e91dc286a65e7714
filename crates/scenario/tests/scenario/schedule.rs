//! Announcements of a grid: in UTC, or by the clock of a path that does not say when it begins.

use std::ops::ControlFlow;
use std::path::Path;

use skyhop_files::write_path;
use skyhop_path::{Endpoint, Frame, PathHeader, PathTrace};
use skyhop_scenario::read_scenario;
use skyhop_units::{Duration, UtcInstant};

/// Times of announced handovers in ms, in a run of 40 s over the file "log.parquet" of 60 s, or the error.
fn announced_ms(start: Option<UtcInstant>, path: &str, signal: &str) -> Result<Vec<u64>, String> {
    let directory = tempfile::tempdir().unwrap();
    write_log(&directory.path().join("log.parquet"), start);
    let text = format!(
        "[path]\n{path}\n[[flow]]\n[signal]\nsource = \"schedule\"\n{signal}\n[run]\nduration = \"40 s\"\n"
    );
    let file = directory.path().join("x.toml");
    std::fs::write(&file, text).unwrap();
    let no_place = |_: &str| Err("no places".to_owned());
    let built = read_scenario(&file, &[])
        .and_then(|named| named.experiment(&no_place, &mut |_, _| ControlFlow::Continue(())));
    let experiment = built.map_err(|error| error.to_string())?;
    Ok(experiment.announcements.iter().map(|a| a.at.as_nanos() / 1_000_000).collect())
}

fn write_log(file: &Path, start: Option<UtcInstant>) {
    let delay = Some(Duration::from_millis(20));
    let frame = Frame { delay, delay_back: delay, ..Frame::default() };
    let ends = ["a", "b"].map(Endpoint::named);
    let (lasts, step) = (Duration::from_secs(60), Duration::from_secs(1));
    let header = PathHeader { start, ..PathHeader::plain("test", ends, lasts, step) };
    write_path(&PathTrace { header, frames: vec![frame] }, file).unwrap();
}

const LOG: &str = "kind = \"trace\"\nfile = \"log.parquet\"";

#[test]
fn a_grid_in_utc_falls_where_the_path_begins() {
    let at_5_s = Some("2026-01-01T00:00:05Z".parse().unwrap());
    assert_eq!(announced_ms(at_5_s, LOG, ""), Ok(vec![7_000, 22_000, 37_000]));
    let given = announced_ms(at_5_s, LOG, "offset = \"11.8 s\"");
    assert_eq!(given, Ok(vec![6_800, 21_800, 36_800]));
}

#[test]
fn without_a_date_the_grid_is_by_the_paths_own_clock() {
    let offset = "offset = \"11.8 s\"";
    assert_eq!(announced_ms(None, LOG, offset), Ok(vec![11_800, 26_800]));
    let later = format!("{LOG}\noffset = \"20 s\"");
    assert_eq!(announced_ms(None, &later, offset), Ok(vec![6_800, 21_800, 36_800]));
    let error = announced_ms(None, LOG, "").unwrap_err();
    assert!(error.contains("signal.source: a schedule is in UTC"), "{error}");
    assert!(error.contains("such as signal.offset = \"11.8 s\""), "{error}");
}
