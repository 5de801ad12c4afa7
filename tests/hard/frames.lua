-- Frames of a protocol whose frames begin with their length, four bytes big-endian, as a plugin of
-- Wireshark reads them: the TCP dissector puts segments together and asks for the length.
-- `lpf.frame` is the bytes of one frame that is whole; a length that no frame has ends the segment's dissection.

local protocol = Proto("lpf", "Length-prefixed frames")
local frame = ProtoField.bytes("lpf.frame", "Frame")
protocol.fields = { frame }

local SHORTEST, LONGEST = 8, 5 * 1024 * 1024 + 10240

local function length_of(buffer, _, offset)
  return 4 + buffer:range(offset, 4):uint()
end

local function show(buffer, _, tree)
  if buffer:len() == buffer:reported_len() then
    tree:add(frame, buffer:range(0))
  end
  return buffer:len()
end

function protocol.dissector(buffer, packet, tree)
  if buffer:len() >= 4 then
    local size = length_of(buffer, packet, 0)
    if size < SHORTEST or size > LONGEST then
      return 0
    end
  end
  dissect_tcp_pdus(buffer, tree, 4, length_of, show)
  return buffer:len()
end

DissectorTable.get("tcp.port"):add(6650, protocol)
