//! Names that a user may have meant by a wrong one.

use skyhop_units::did_you_mean;

const SENDERS: [&str; 6] = ["bbr", "bbr2", "bbr3", "cubic", "satcp", "satpipe"];
const CONSTELLATIONS: [&str; 4] =
    ["leoem-starlink", "starlink-550-hypatia", "starlink-gen1", "starlink-shell1"];

#[test]
fn the_nearest_names_are_suggested() {
    for (name, known, meant) in [
        ("BBR", &SENDERS[..], " (did you mean bbr?)"),
        ("SatPipe", &SENDERS, " (did you mean satpipe?)"),
        ("sat_pipe", &SENDERS, " (did you mean satpipe?)"),
        ("bbrv3", &SENDERS, " (did you mean bbr3?)"),
        ("bbr1", &SENDERS, " (did you mean bbr?)"),
        ("cubik", &SENDERS, " (did you mean cubic?)"),
        ("sat", &SENDERS, " (did you mean satcp or satpipe?)"),
        ("Starlink-Shell1", &CONSTELLATIONS, " (did you mean starlink-shell1?)"),
        (
            "starlink",
            &CONSTELLATIONS,
            " (did you mean starlink-gen1, starlink-shell1 or starlink-550-hypatia?)",
        ),
        ("bbr_", &["bbr", "bbr"], " (did you mean bbr?)"),
        ("westwood", &SENDERS, ""),
        ("b", &SENDERS, ""),
        ("-", &["", "-"], ""),
        ("", &SENDERS, ""),
        ("bbr", &[], ""),
    ] {
        assert_eq!(did_you_mean(name, known.iter().copied()), meant, "{name}");
    }
}

#[test]
fn a_long_name_is_compared_by_its_beginning() {
    let long = "a".repeat(1 << 20);
    assert_eq!(did_you_mean(&long, ["b"]), "");
}
