//! Conversion of structs from and to bytes.

use skyhop_cc::MapValue as _;
use skyhop_cc::bindings::{Phase, Told};

#[test]
fn what_is_written_is_read_and_nothing_of_another_size() {
    let phase = Phase { begin_ns: 1, end_ns: 2, kind: 0 };
    let told = Told { netns_cookie: 7, phase, local_port: 80, remote_port: 9, unused: 0 };
    assert_eq!(Told::from_bytes(told.as_bytes()), Some(told));
    assert_eq!(Told::from_bytes(&told.as_bytes()[1..]), None);
    assert_eq!(told.as_bytes()[..8], 7_u64.to_ne_bytes());
}
