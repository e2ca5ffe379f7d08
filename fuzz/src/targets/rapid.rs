//! Rapid DNS: requests as a server reads them, responses as a client does.

use rapid::frame::{NAME_MAX, Requests, Responses, request, response};

/// However octets are cut, the same addresses are read, none of which begins with a separator.
pub(super) fn requests(octets: &[u8]) {
    let whole = read(&[octets]);
    let (first, second) = octets.split_at(octets.len() / 2);
    assert_eq!(whole, read(&[first, second]));
    assert!(whole.iter().all(|address| request((*address).into()).is_some()));
}

fn read(pieces: &[&[u8]]) -> Vec<[u8; 4]> {
    let (mut requests, mut input, mut read) = (Requests::default(), Vec::new(), Vec::new());
    for piece in pieces {
        input.extend_from_slice(piece);
        let mut taken = 0;
        while let Some(address) = requests.next(&input, &mut taken) {
            read.push(address.octets());
        }
        input.drain(..taken);
        assert!(input.len() < 4, "what is not taken is the beginning of an address");
    }
    read
}

pub(super) fn asked() -> Vec<Vec<u8>> {
    let plain: Vec<u8> =
        (1..6).flat_map(|last| request([192, 0, 2, last].into()).expect("no separator")).collect();
    let separators = [10, 255, 0, 255, 255, 10, 0, 0, 1, 255, 255, 10, 0, 0, 2];
    vec![plain, separators.to_vec()]
}

/// Names that are read break no line and no header, and what is kept for later is bounded.
pub(super) fn responses(octets: &[u8]) {
    let (mut responses, mut taken) = (Responses::default(), 0);
    while let Some((_, name)) = responses.next(octets, &mut taken) {
        let fits = |octet: u8| octet.is_ascii_alphanumeric() || b"-_/.".contains(&octet);
        assert!(name.is_none_or(|name| !name.is_empty() && name.len() <= NAME_MAX && name.bytes().all(fits)));
    }
    assert!(octets.len() - taken <= 4 + NAME_MAX);
}

pub(super) fn answered() -> Vec<Vec<u8>> {
    let mut octets = Vec::new();
    for (last, name) in [(1, &b"www.example"[..]), (2, b""), (255, b"a.example"), (3, b"b.example")] {
        response([192, 0, 2, last].into(), name, &mut octets);
    }
    vec![octets]
}
