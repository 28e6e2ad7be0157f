//! What every engine keeps: etcd takes requests of 1.5 MB, Firestore names of 1,500 bytes when they are encoded, and
//! PostgreSQL no zero bytes. A lease moves from one engine to another only if none of them is asked for more.

use git_fence_core::StoreFault;

/// In bytes.
const LONGEST_NAME: usize = 500;
const LONGEST_RECORD: usize = 512 * 1024;

/// Whether a record can have this name.
pub(crate) fn name(name: &str) -> Result<(), StoreFault> {
    let hint = "set fence.resource to a shorter name";
    if name.len() > LONGEST_NAME {
        let why = format!("the name of the record is longer than {LONGEST_NAME} bytes");
        return Err(StoreFault::unusable(why, hint));
    }
    match name.contains('\0') {
        true => Err(StoreFault::unusable("the name of the record has a zero byte", hint)),
        false => Ok(()),
    }
}

/// Whether this can be a record.
pub(crate) fn record(body: &str) -> Result<(), StoreFault> {
    if body.len() > LONGEST_RECORD {
        let why = format!("the record is longer than {LONGEST_RECORD} bytes");
        return Err(StoreFault::unusable(
            why,
            "shorten reason and holder; if they are short, the record is not a lease",
        ));
    }
    match body.contains('\0') {
        true => Err(StoreFault::unusable("the record has a zero byte", "it is not a lease: check the URL")),
        false => Ok(()),
    }
}
