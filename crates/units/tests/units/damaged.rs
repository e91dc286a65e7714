//! Tests of the parsers of quantities on damaged text.

use std::fmt::{Debug, Display};
use std::str::FromStr;

use skyhop_needs::fuzz::Trial;
use skyhop_units::{
    Angle, Bytes, Duration, Length, QuantityError, QueueLimit, Rate, Ratio, UtcInstant,
};

/// Parse a text, and check that the value survives being written and parsed again.
fn read<T>(bytes: &[u8]) -> Result<(), String>
where
    T: FromStr<Err = QuantityError> + Display + PartialEq + Debug,
{
    let text = std::str::from_utf8(bytes).map_err(|error| error.to_string())?;
    let read: T = text.parse().map_err(|error: QuantityError| error.to_string())?;
    let written = read.to_string();
    let again: T = written.parse().unwrap_or_else(|error| panic!("{written}: {error}"));
    assert_eq!(again.to_string(), written);
    Ok(())
}

#[test]
fn durations() {
    Trial::of_text("durations", ["20 ms", "1.5 h", "7 days", "1e-3 s", "0.5µs"])
        .run(read::<Duration>);
}

#[test]
fn rates() {
    Trial::of_text("rates", ["150 Mbit/s", "1e9 bit/s", "0.064 Gbps"]).run(read::<Rate>);
}

#[test]
fn sizes() {
    Trial::of_text("sizes", ["1.5 MB", "64 B", "10 KiB"]).run(read::<Bytes>);
}

#[test]
fn queue_limits() {
    let samples = ["1.5 BDP", "1000 packets", "260 ms", "1.5 MB"];
    Trial::of_text("queue limits", samples).run(read::<QueueLimit>);
}

#[test]
fn lengths_angles_and_ratios() {
    Trial::of_text("lengths", ["550 km", "12.5 m"]).run(read::<Length>);
    Trial::of_text("angles", ["25 deg", "0.5 deg"]).run(read::<Angle>);
    Trial::of_text("ratios", ["0.1 %", "50%", "1e-3 %"]).run(read::<Ratio>);
}

#[test]
fn moments() {
    let samples = [
        "2019-12-01T00:00:00Z",
        "2026-05-19 10:57:00.123456",
        "2026-05-19",
        "2026-05-19T10:57:00+02:00",
        "1999-12-31T23:59",
    ];
    Trial::of_text("moments", samples).run(read::<UtcInstant>);
}
