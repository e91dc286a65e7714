//! Tests that quantities survive the way to text and back, and that wrong text is refused with a reason.

use proptest::prelude::*;
use skyhop_units::{Bytes, Duration, Instant, Length, QueueLimit, Rate, Ratio, UtcInstant};

#[test]
fn quantities_are_read_with_their_units() {
    assert_eq!("20 ms".parse(), Ok(Duration::from_millis(20)));
    assert_eq!("1 h".parse(), Ok(Duration::from_secs(3600)));
    assert_eq!("1 hour".parse(), Ok(Duration::from_secs(3600)));
    assert_eq!("90 minutes".parse(), Ok(Duration::from_secs(5400)));
    assert_eq!("1e-3 s".parse(), Ok(Duration::from_millis(1)));
    assert_eq!("0.5ms".parse(), Ok(Duration::from_micros(500)));
    assert_eq!("150 Mbit/s".parse(), Ok(Rate::from_bits_per_second(150_000_000)));
    assert_eq!("1.5 MB".parse(), Ok(Bytes::new(1_500_000)));
    assert_eq!("100 bytes".parse(), Ok(Bytes::new(100)));
    assert_eq!("550 km".parse(), Ok(Length::from_metres(550e3)));
    assert_eq!("0.1 %".parse::<Ratio>().unwrap().fraction(), 0.001);
    assert_eq!("1 BDP".parse(), Ok(QueueLimit::Bdp(1.0)));
    assert_eq!("1000 packets".parse(), Ok(QueueLimit::Packets(1000)));
    assert_eq!("260 ms".parse(), Ok(QueueLimit::Time(Duration::from_millis(260))));
    assert_eq!("1.5 MB".parse(), Ok(QueueLimit::Bytes(Bytes::new(1_500_000))));
}

/// The units of tc(8), netem and RFCs of which each has one meaning; others are refused with a suggestion.
#[test]
fn units_of_other_tools_are_read_or_suggested() {
    for text in ["20mbit", "20 mbit", "20 Mbit", "20000kbit", "20 Mbps", "20 Mb/s", "2.5 MB/s"] {
        assert_eq!(text.parse(), Ok(Rate::from_bits_per_second(20_000_000)), "{text}");
    }
    for text in
        ["20ms", "20 msec", "20msecs", "20000usec", "20000 usecs", "0.02secs", "20 milliseconds"]
    {
        assert_eq!(text.parse(), Ok(Duration::from_millis(20)), "{text}");
    }
    // tc's mbps are megabytes per second, and its kb are 1024 bytes.
    for (text, hint) in [
        ("20mbps", "\"20mbps\" has the unit \"mbps\" (did you mean Mbps?)"),
        ("20 mb/s", "\"20 mb/s\" has the unit \"mb/s\" (did you mean Mb/s or MB/s?)"),
        ("20 MBIT/S", "\"20 MBIT/S\" has the unit \"MBIT/S\" (did you mean Mbit/s?)"),
        ("20 Mbits/sec", "\"20 Mbits/sec\" has the unit \"Mbits/sec\" (did you mean Mbit/s?)"),
    ] {
        let message = text.parse::<Rate>().unwrap_err().to_string();
        assert!(message.starts_with(hint), "{message}");
    }
    let message = "16kb".parse::<QueueLimit>().unwrap_err().to_string();
    assert!(message.starts_with("\"16kb\" has the unit \"kb\" (did you mean kB?)"), "{message}");
    let message = "1 Bpd".parse::<QueueLimit>().unwrap_err().to_string();
    assert!(!message.contains("did you mean"), "{message}");
}

#[test]
fn wrong_text_is_refused_with_what_was_expected() {
    let message = |error: skyhop_units::QuantityError| error.to_string();
    assert_eq!(
        message("20 Mbit".parse::<Duration>().unwrap_err()),
        "\"20 Mbit\" has the unit \"Mbit\"; expected a duration such as \"20 ms\", \"60 s\" or \"1 h\""
    );
    assert_eq!(
        message("150".parse::<Rate>().unwrap_err()),
        "\"150\" has no unit; expected a rate such as \"150 Mbit/s\""
    );
    for negative in ["-1 Mbit/s", "1e400 Mbit/s", "fast", ""] {
        assert!(negative.parse::<Rate>().is_err(), "{negative}");
    }
    for wrong in ["-1 BDP", "0 packets", "3 apples", "BDP"] {
        assert!(wrong.parse::<QueueLimit>().is_err(), "{wrong}");
    }
    assert!("101 %".parse::<Ratio>().is_err());
    assert_eq!(
        message("yesterday".parse::<UtcInstant>().unwrap_err()),
        "\"yesterday\" is not a date or a time; expected a UTC time such as \"2019-12-01T00:00:00Z\" or \
         \"2019-12-01\", or --start now"
    );
    let too_late = message("9999-01-01".parse::<UtcInstant>().unwrap_err());
    assert!(too_late.starts_with("\"9999-01-01\" is out of range; expected "), "{too_late}");
}

#[test]
fn durations_in_messages_have_few_digits() {
    for (ns, text) in [
        (800_255_115_872, "800.255 s"),
        (60_000_000_000, "60 s"),
        (1_500_000, "1.5 ms"),
        (999, "999 ns"),
        (0, "0 s"),
    ] {
        assert_eq!(format!("{:.3}", Duration::from_nanos(ns)), text);
    }
    assert_eq!(format!("{:.0}", Duration::from_secs(100)), "100 s");
}

#[test]
fn a_packet_takes_its_bits_over_the_rate() {
    let rate: Rate = "150 Mbit/s".parse().unwrap();
    assert_eq!(rate.transmit_time(Bytes::new(1514)).as_nanos(), 80_747);
    assert_eq!(Rate::ZERO.transmit_time(Bytes::new(1)), Duration::MAX);
}

#[test]
fn utc_counts_days_from_j2000() {
    let noon: UtcInstant = "2000-01-02T12:00:00Z".parse().unwrap();
    assert_eq!(noon.days_since_j2000(), 1.0);
    assert_eq!(noon.to_string(), "2000-01-02T12:00:00Z");
}

proptest! {
    #[test]
    fn durations_survive_text(ns in 0_u64..1 << 50) {
        let duration = Duration::from_nanos(ns);
        prop_assert_eq!(duration.to_string().parse::<Duration>().unwrap(), duration);
    }

    #[test]
    fn rates_and_sizes_survive_text(n in 0_u64..1 << 50) {
        let (rate, bytes) = (Rate::from_bits_per_second(n), Bytes::new(n));
        prop_assert_eq!(rate.to_string().parse::<Rate>().unwrap(), rate);
        prop_assert_eq!(bytes.to_string().parse::<Bytes>().unwrap(), bytes);
    }

    #[test]
    fn bytes_in_a_transmit_time_are_the_bytes(size in 1_u64..1 << 30, bps in 8_u64..1 << 36) {
        let rate = Rate::from_bits_per_second(bps);
        let bytes = rate.bytes_in(rate.transmit_time(Bytes::new(size))).as_u64();
        // Rounding up to a nanosecond may let a few more bits through.
        prop_assert!((size..=size + 1 + bps / 8_000_000_000).contains(&bytes));
    }

    #[test]
    fn instants_order_like_their_nanoseconds(a in 0_u64..1 << 62, b in 0_u64..1 << 62) {
        let (later, earlier) = (Instant::from_nanos(a.max(b)), Instant::from_nanos(a.min(b)));
        prop_assert_eq!(earlier + (later - earlier), later);
    }
}

#[test]
fn offsets_of_times_may_lack_the_colon() {
    let expected: UtcInstant = "2026-05-20T12:00:00Z".parse().unwrap();
    for text in [
        "2026-05-20T21:00:00+0900",
        "2026-05-20T21:00:00+09:00",
        "2026-05-20T21:00:00.0+09",
        "2026-05-20 08:00:00 -0400",
        "2026-05-20T08:00-0400",
        "2026-05-20 12:00:00 UTC",
    ] {
        assert_eq!(text.parse(), Ok(expected), "{text}");
    }
}
