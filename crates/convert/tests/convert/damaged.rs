//! Damaged logs and captures as files: compressed, in other encodings, of any format.

use std::fs;
use std::io::Write;
use std::path::Path;

use flate2::Compression;
use flate2::write::GzEncoder;
use skyhop_convert::blind::estimate_grid;
use skyhop_convert::import::{ImportOptions, import_log};
use skyhop_needs::fuzz::{Trial, check_line};
use skyhop_signal::blind::Period;

const PING: &str = "\
PING example.net (192.0.2.1) 56(84) bytes of data.
[1700000000.020000] 64 bytes from 192.0.2.1: icmp_seq=1 ttl=56 time=20.0 ms
[1700000015.130000] 64 bytes from 192.0.2.1: icmp_seq=2 ttl=56 time=30.0 ms
[1700000030.340000] 64 bytes from 192.0.2.1: icmp_seq=4 ttl=56 time=40.0 ms
";

fn gzipped(text: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
    encoder.write_all(text).expect("memory can be written");
    encoder.finish().expect("memory can be written")
}

fn utf16(text: &str) -> Vec<u8> {
    [0xfeff].into_iter().chain(text.encode_utf16()).flat_map(u16::to_le_bytes).collect()
}

/// Give a file with these bytes to a reader; return the error without its directory.
fn read<T>(
    bytes: &[u8],
    directory: &Path,
    read: impl Fn(&Path) -> Result<T, skyhop_convert::ConvertError>,
) -> Result<T, String> {
    let file = directory.join("log");
    fs::write(&file, bytes).expect("there is room for temporary files");
    let directory = directory.display().to_string();
    read(&file).map_err(|error| error.to_string().replace(&directory, ""))
}

#[test]
fn packed_logs() {
    let directory = tempfile::tempdir().expect("there is room for temporary files");
    let import = |bytes: &[u8]| {
        let options = ImportOptions::default();
        let read = read(bytes, directory.path(), |file| import_log(file, Some("ping"), &options));
        assert_eq!(read?.trace.validate(), Ok(()));
        Ok::<(), String>(())
    };
    Trial::of_bytes("gzipped log", [gzipped(PING.as_bytes())]).run(import);
    Trial::of_bytes("utf-16 log", [utf16(PING)]).run(import);
}

#[test]
fn logs_in_which_a_grid_is_looked_for() {
    let directory = tempfile::tempdir().expect("there is room for temporary files");
    let row = |n: u64| {
        format!("{},{}\n", 1_700_000_000_000_000_000 + n * 500_000_000, 20 + n / 30 % 3 * 9)
    };
    let rows: String = (0..240).map(row).collect();
    let samples = [PING.to_owned(), format!("unix_ns,rtt_ms\n{rows}")];
    Trial::of_text("log with a grid", samples).run(|bytes| {
        for period in [Period::Known(skyhop_units::Duration::from_secs(15)), Period::Searched] {
            let found =
                read(bytes, directory.path(), |file| estimate_grid(file, None, period, &|| false))?;
            assert!((0.0..=1.0).contains(&found.estimate.confidence), "{found:?}");
            found.stream.iter().for_each(|name| check_line(name));
        }
        Ok::<(), String>(())
    });
}

/// Rows of round trips every 100 ms for five minutes, which begin at this time.
fn five_minutes(begin_ns: i64) -> String {
    let row = |n: i64| format!("{},{}\n", begin_ns + n * 100_000_000, 30 + n % 5);
    (0..3000).map(row).collect()
}

#[test]
fn times_of_several_clocks_and_long_periods_are_errors() {
    let directory = tempfile::tempdir().expect("there is room for temporary files");
    let seconds = |s| Period::Known(skyhop_units::Duration::from_secs(s));
    let refused = |rows: &str, period| {
        let text = format!("unix_ns,rtt_ms\n{rows}");
        let found = read(text.as_bytes(), directory.path(), |file| {
            estimate_grid(file, None, period, &|| false)
        });
        found.unwrap_err()
    };
    let modern = 1_779_000_000_000_000_000;
    let two_clocks = [five_minutes(0), five_minutes(modern)].concat();
    for rows in ["0,30\n9223372036854775807,30\n", "-9223372036854775808,30\n0,30\n", &two_clocks] {
        for period in [seconds(15), Period::Searched] {
            let error = refused(rows, period);
            assert!(error.contains("times jump from") || error.contains("unix_ns"), "{error}");
        }
    }
    let error = refused(&five_minutes(modern), seconds(1000 * 86_400));
    assert!(error.contains("--period: ") && error.contains("the longest of a grid"), "{error}");
    let error = refused(&five_minutes(modern), seconds(1000));
    assert!(error.contains("is longer than the log of 299 s"), "{error}");
}

#[test]
fn an_interrupted_search_ends() {
    let directory = tempfile::tempdir().expect("there is room for temporary files");
    let text = format!("unix_ns,rtt_ms\n{}", five_minutes(1_779_000_000_000_000_000));
    let stopped = |file: &Path| estimate_grid(file, None, Period::Searched, &|| true);
    let error = read(text.as_bytes(), directory.path(), stopped).unwrap_err();
    assert!(error.contains("interrupted"), "{error}");
}
