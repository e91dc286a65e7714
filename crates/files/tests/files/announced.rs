//! What Parquet files announce.

use skyhop_files::announced_columns;

#[test]
fn what_is_no_footer_is_an_error() {
    for footer in [&b""[..], b"x", &[0xff; 200]] {
        assert!(announced_columns(footer).is_err());
    }
}
