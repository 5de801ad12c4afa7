/*
number = "V11"
code = "checksums_match"
title = "Whether checksums match"
severity = "info"
section = "checksum_failures"
fires = ["fake-f08_badcrc.pcap"]
silent = ["java-j01_plain.pcap"]

[names]
confirmed_by_peer = "confirmed by the receiver"
capture_artefact = "in the capture only, the receiver took the frame"
unconfirmed = "not confirmed by the receiver"

[text]
what = "{evaluated} checksums could be evaluated, and {evaluated|it matches|all match}[; {not_evaluated} could not be].[ Not applicable to {beside} connections of Cursus.]"

[variant.match]
severity = "ok"

[variant.mismatch]
what = "{mismatch} of {evaluated} checksums {mismatch|does|do} not match: {kinds:shares}.[ Not applicable to {beside} connections of Cursus.]"
do = "Suspect memory or network card of the sender, or a device between."
show = "frames checksum == \"mismatch\""

[variant.artefact]
like = "mismatch"
do = "Suspect the capture, not the traffic."
*/
WITH numbers AS (
  SELECT
    place, is_evident, nullif(coverage.total.connections_by_protocol['cursus'], 0) AS beside,
    unnest(checksum_failures.total)
  FROM totals
)
SELECT
  place,
  CASE
    WHEN mismatch > 0 THEN if(confirmed_by_peer + unconfirmed > 0, 'mismatch', 'artefact')
    WHEN not_evaluated <= evaluated AND is_evident THEN 'match'
    ELSE ''
  END AS variant,
  evaluated AS measured_evaluated, nullif(not_evaluated, 0) AS measured_not_evaluated,
  mismatch AS measured_mismatch,
  map_from_entries(list_filter(
    [
      {'key': 'confirmed_by_peer', 'value': confirmed_by_peer},
      {'key': 'capture_artefact', 'value': capture_artefact},
      {'key': 'unconfirmed', 'value': unconfirmed}
    ], lambda e: e.value > 0
  )) AS measured_kinds,
  beside AS measured_beside
FROM numbers
WHERE not_applicable IS NULL AND evaluated > 0
