//! Parquet footers: errors of bytes that are none.

use skyhop_files::footer_columns;

#[test]
fn what_is_no_footer_is_an_error() {
    for footer in [&b""[..], b"x", &[0xff; 200]] {
        assert!(footer_columns(footer).is_err());
    }
}
