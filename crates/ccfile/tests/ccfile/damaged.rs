//! Fuzz test of the parser of includes in C files of congestion controls.

use std::fs;

use skyhop_ccfile::Sources;
use skyhop_needs::fuzz::Trial;

const IDEA: &str = r#"
#include "skyhop_cc.h"
# include  "part.h"
#include <stdio.h>
/* #include "none.h" */
static u32 idea_ssthresh(struct sock *sk) { return 2; }
SKYHOP_MODULE(idea, "about it", .ssthresh = SKYHOP_FN(idea_ssthresh))
"#;

#[test]
fn sources_in_c() {
    let place = tempfile::tempdir().expect("there is room for temporary files");
    let file = place.path().join("idea.c");
    fs::write(place.path().join("part.h"), "#include \"idea.c\"\n").expect("there is room");
    Trial::of_text("sources in c", [IDEA]).run(|bytes| {
        fs::write(&file, bytes).expect("there is room for temporary files");
        // With and without another version of skyhop's header next to the file.
        let header = place.path().join("skyhop_cc.h");
        match bytes != IDEA.as_bytes() && bytes.len() % 3 == 0 {
            true => fs::write(&header, bytes).expect("there is room for temporary files"),
            false => drop(fs::remove_file(&header)),
        }
        let read = Sources::read(&file).map_err(|error| error.to_string())?;
        assert!(read.digests().len() <= 3, "{:?}", read.digests());
        Ok::<(), String>(())
    });
}
