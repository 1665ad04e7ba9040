"""Driving schools, waste, camping, kindergartens, elections, bicycles, bees, aquariums and dentists: questions of
tests/noise.py, written after the rules of frequency.py and looked at once; docs/45-curate.md has the figures."""

# ruff: noqa: E501
from __future__ import annotations

import random
import re

from tests.noise import Noise

KEYS = "qwertyuiop asdfghjkl zxcvbnm"
ALIKE = {
    "驾": "架", "照": "兆", "教": "叫", "练": "炼", "考": "老", "试": "式", "垃": "拉", "圾": "级", "扔": "仍", "桶": "捅", "电": "申", "池": "他",
    "帐": "账", "篷": "蓬", "睡": "垂", "营": "管", "地": "的", "露": "路", "幼": "幻", "园": "圆", "孩": "该", "接": "结", "费": "废", "选": "先",
    "票": "漂", "投": "头", "候": "侯", "链": "练", "条": "跳", "胎": "台", "刹": "杀", "换": "唤", "蜂": "峰", "蜜": "密", "养": "样", "箱": "相",
    "鱼": "渔", "缸": "肛", "水": "永", "氧": "养", "牙": "呀", "拔": "拨", "齿": "尺", "疼": "痛", "洗": "冼", "补": "朴", "需": "须", "请": "清",
    "问": "间", "时": "是", "间": "问", "钱": "线", "几": "机", "每": "毎", "应": "因", "在": "再", "的": "得", "能": "熊", "要": "耍", "多": "夕",
    "少": "小", "报": "抱", "名": "明", "为": "位", "什": "甚", "么": "吗", "怎": "乍", "可": "何", "以": "已", "岁": "碎", "超": "抄", "速": "束",
    "罚": "罰", "停": "亭", "车": "东", "坏": "杯", "修": "休", "收": "牧", "回": "会", "冬": "东", "夏": "厦", "天": "无", "哪": "那", "里": "理",
}  # fmt: skip


def typo_en(text: str, dice: random.Random) -> str:
    """A letter for its neighbour on the keyboard, left out, twice, or behind the next one, in a word of four or more."""
    word = dice.choice(list(re.finditer(r"[A-Za-z]{4,}", text)))
    at = dice.randrange(word.start() + 1, word.end() - 1)
    place = KEYS.index(text[at].lower()) if text[at].lower() in KEYS else 1
    near = KEYS[place + 1 : place + 2].strip() or KEYS[place - 1]
    swapped = text[:at] + text[at + 1] + text[at] + text[at + 2 :]
    other = text[:at] + near + text[at + 1 :]
    return dice.choice((swapped, other, text[:at] + text[at + 1 :], text[:at] + text[at] + text[at:]))


def typo_zh(text: str, dice: random.Random) -> str:
    """A character that sounds or looks the same; else one twice, one left out, or two that change places."""
    places = [at for at, char in enumerate(text) if char in ALIKE]
    if places and dice.random() < 0.7:
        at = dice.choice(places)
        return text[:at] + ALIKE[text[at]] + text[at + 1 :]
    at = dice.choice([m.start() for m in re.finditer(r"(?<=[\u4e00-\u9fff])[\u4e00-\u9fff](?=[\u4e00-\u9fff])", text)])
    swapped = text[:at] + text[at + 1] + text[at] + text[at + 2 :]
    return dice.choice((swapped, text[:at] + text[at + 1 :], text[:at] + text[at] + text[at:]))


ENGLISH = Noise(
    asked=(
        "How many driving lessons do I need | before the exam in {town}?",
        "What happens | if I fail the theory test {n} times?",
        "Am I allowed to drive a {vehicle} | with a foreign licence in {town}?",
        "How high is the fine | for speeding by {n} kilometers per hour?",
        "Where can I throw away {waste} | in {town}?",
        "Why was my bin with {waste} not emptied | on {day}?",
        "How many kilograms of {waste} does a household in {town} produce?",
        "Which container is meant | for {waste}?",
        "How do I keep {animal}s away | from my tent at night?",
        "Which sleeping bag is warm enough | at minus {n} degrees?",
        "Can we light a campfire | near the lake in {town}?",
        "How heavy is a tent | for {n} campers?",
        "At what age can my child start kindergarten | in {town}?",
        "How many children does one educator supervise | in a group of {n}?",
        "May I pick up my son | {n} minutes later?",
        "What does the kindergarten serve for lunch | on {day}?",
        "How many votes did {party} receive | in {town}?",
        "Who is entitled to vote | in the election in {town}?",
        "Did {party} defeat {party2} | in {n}?",
        "Can I vote by post | if I live in {town}?",
        "How do I replace the {part} | of a mountain bike?",
        "How often should I grease the {part} | when I ride {n} miles a week?",
        "Why does the {part} squeak | when it rains?",
        "What does it cost to repair the {part} | in {town}?",
        "How much honey do {n} hives yield | in {month}?",
        "Which flowers attract bees | in {month}?",
        "Is it normal | that my bees are aggressive in {month}?",
        "How many liters of water does a {fish} need | in an aquarium?",
        "Can I keep a {fish} together with a {fish2}?",
        "Why are my {fish} dying | after {n} days?",
        "How long does it hurt | after the dentist has pulled {n} teeth?",
        "Does my insurance cover a crown | that costs {n} dollars?",
    ),
    pools={
        "town": ["Ghent", "Oslo", "Denver", "Perth", "Krakow", "Seville"],
        "vehicle": ["truck", "scooter", "minibus", "tractor", "motorcycle"],
        "waste": ["batteries", "old clothes", "glass", "paint", "branches", "cardboard"],
        "day": ["Monday", "Wednesday", "Thursday", "Saturday"],
        "animal": ["bear", "mosquito", "fox", "raccoon", "snake"],
        "party": ["Labour", "the Greens", "the Liberals", "the Conservatives", "Fidesz"],
        "part": ["chain", "brake", "saddle", "tire", "pedal"],
        "month": ["March", "April", "June", "August", "October"],
        "fish": ["goldfish", "guppy", "catfish", "neon tetra", "turtle"],
    },
    numbers=(3, 5, 7, 10, 12, 15, 18, 24, 30, 45, 60, 90),
    words={
        "synonym": {"lessons": "classes", "exam": "test", "need": "require", "fail": "flunk", "allowed": "permitted", "drive": "operate", "foreign": "overseas", "fine": "penalty", "throw away": "dispose of", "bin": "garbage can", "emptied": "cleared", "household": "home", "produce": "generate", "container": "receptacle", "meant": "intended", "keep": "hold", "warm enough": "sufficiently warm", "light": "start", "near": "close to", "heavy": "weighty", "child": "kid", "start": "begin", "supervise": "look after", "educator": "teacher", "pick up": "collect", "later": "afterwards", "serve": "offer", "receive": "get", "entitled": "eligible", "defeat": "beat", "live": "reside", "replace": "exchange", "grease": "lubricate", "squeak": "make a noise", "repair": "fix", "cost": "amount to", "yield": "produce", "attract": "draw", "normal": "usual", "aggressive": "hostile", "dying": "perishing", "hurt": "ache", "pulled": "extracted", "cover": "pay for", "often": "frequently", "happens": "occurs", "together": "jointly", "much": "large a quantity of"},
        "abbreviation": {"kilometers per hour": "km/h", "kilograms": "kg", "minus": "-", "degrees": "deg", "minutes": "min", "miles": "mi", "liters": "l", "dollars": "USD", "Monday": "Mon", "Wednesday": "Wed", "Thursday": "Thu", "Saturday": "Sat", "March": "Mar", "April": "Apr", "August": "Aug", "October": "Oct", "before": "b4", "kindergarten": "KG", "with": "w/", "mountain bike": "MTB", "motorcycle": "motorbike", "aquarium": "aquar.", "insurance": "ins.", "election": "elec.", "people": "ppl", "night": "nite", "times": "x", "group": "grp", "week": "wk", "days": "d"},
        "switch": {"exam": "考试", "tent": "帐篷", "bees": "蜜蜂", "honey": "蜂蜜", "child": "孩子", "kindergarten": "幼儿园", "water": "水", "aquarium": "鱼缸", "dentist": "牙医", "teeth": "牙齿", "insurance": "保险", "election": "选举", "vote": "投票", "votes": "选票", "fine": "罚款", "chain": "链条", "brake": "刹车", "lake": "湖", "lunch": "午饭", "flowers": "花", "batteries": "电池", "glass": "玻璃", "container": "容器", "sleeping bag": "睡袋", "son": "儿子", "truck": "卡车", "household": "家庭", "driving lessons": "驾驶课"},
        "contraction": {"What is": "What's", "Who is": "Who's", "How do I": "How d'I", "Why was": "Why's", "was my bin with": "was my bin w/", "not emptied": "n't emptied", "Is it": "Is't", "has pulled": "'s pulled", "How high is": "How high's", "What does it": "What's it", "that my bees are": "that my bees're", "does one": "does 1", "Am I": "Am I", "should I": "should i", "Why are": "Why're", "How heavy is": "How heavy's", "can my child": "can my kid"},
        "attribute": {"before": "after", "fail": "pass", "foreign": "new", "speeding": "parking", "throw away": "buy", "household": "factory", "keep": "feed", "warm enough": "cheap enough", "light": "put out", "heavy": "expensive", "start": "leave", "supervise": "feed", "later": "earlier", "son": "daughter", "lunch": "breakfast", "receive": "lose", "entitled": "forced", "defeat": "join", "by post": "online", "replace": "clean", "grease": "paint", "rains": "snows", "repair": "rent", "honey": "wax", "attract": "kill", "aggressive": "lazy", "dying": "growing", "hurt": "bleed", "teeth": "nails", "crown": "cleaning", "together with": "instead of", "night": "noon", "mountain": "racing", "theory": "eye", "water": "sand"},
        "unit": {"kilometers": "miles", "kilograms": "pounds", "minutes": "hours", "miles": "kilometers", "liters": "gallons", "days": "months", "dollars": "euros", "week": "month", "times": "days"},
        "negation": {"Can I": "Can't I", "Can we": "Can't we", "Am I allowed": "Am I not allowed", "May I": "May I not", "Does my": "Doesn't my", "Did": "Didn't", "Is it": "Isn't it", "was my bin": "wasn't my bin", "Who is": "Who is not", "with a foreign": "without a foreign"},
    },
    before=("Hello everybody, ", "Sorry for asking, but ", "Can anybody help? ", "Dear all, ", "Would you mind telling me, ", "Good day! ", "I'd like to know: "),
    after=(" Thanks in advance.", " Thank you!", " Any help is welcome.", " Best wishes", " Please reply soon.", " Much obliged."),
    typo=typo_en,
    chinese=False,
    symmetric=frozenset(["fish"]),
)  # fmt: skip

CHINESE = Noise(
    asked=(
        "在{town}考驾照|要上多少节课？",
        "科目{n}没通过|多久以后能补考？",
        "超速{n}公里|会罚多少钱？",
        "拿外国驾照|能在{town}开{vehicle}吗？",
        "{town}的{waste}|应该扔进哪个垃圾桶？",
        "{day}的{waste}|为什么没有人收？",
        "{town}一个家庭|每天产生多少公斤{waste}？",
        "回收{n}公斤{waste}|可以卖多少钱？",
        "露营的时候|怎么防{animal}？",
        "零下{n}度|用哪种睡袋够暖和？",
        "在{town}的湖边|允许生火吗？",
        "{n}人的帐篷|有多重？",
        "{town}的孩子|几岁可以上幼儿园？",
        "{n}个小孩的班|需要几位老师照顾？",
        "晚{n}分钟接孩子|要不要加钱？",
        "幼儿园{day}的午餐|吃什么？",
        "{party}在{town}的选举里|得了多少票？",
        "住在{town}的外国人|有资格投票吗？",
        "{party}上次选举|赢了{party2}吗？",
        "投票站|{day}几点关门？",
        "山地车的{part}坏了|怎么更换？",
        "每周骑{n}公里|多久给{part}上一次油？",
        "下雨的时候|{part}为什么会响？",
        "在{town}修{part}|大概要花多少钱？",
        "{n}箱蜜蜂|{month}能产多少蜂蜜？",
        "{month}种什么花|能吸引蜜蜂？",
        "{month}的蜜蜂|为什么容易蜇人？",
        "养一条{fish}|至少需要多少升水？",
        "{fish}和{fish2}|能放在同一个鱼缸里吗？",
        "换水{n}天以后|{fish}为什么死了？",
        "拔了{n}颗牙|会疼几天？",
        "洗牙花了{n}元|医保能报销吗？",
    ),
    pools={
        "town": ["杭州", "青岛", "成都", "哈尔滨", "珠海", "西宁"],
        "vehicle": ["卡车", "摩托车", "面包车", "拖拉机"],
        "waste": ["旧电池", "旧衣服", "玻璃瓶", "油漆", "纸箱", "树枝"],
        "day": ["周一", "周三", "周四", "周六"],
        "animal": ["蚊子", "黑熊", "野猪", "毒蛇", "狐狸"],
        "party": ["工党", "绿党", "自民党", "保守党"],
        "part": ["链条", "刹车", "车座", "轮胎", "脚踏"],
        "month": ["三月", "四月", "六月", "八月", "十月"],
        "fish": ["金鱼", "孔雀鱼", "鲶鱼", "红绿灯鱼", "乌龟"],
    },
    numbers=(3, 5, 7, 12, 15, 18, 24, 30, 45, 60, 90),
    words={
        "synonym": {"多少钱": "几块钱", "多久": "多长时间", "扔进": "丢进", "垃圾桶": "垃圾箱", "家庭": "住户", "产生": "制造", "回收": "收回", "怎么": "怎样", "防": "防止", "暖和": "温暖", "允许": "准许", "生火": "点火", "多重": "多少重量", "孩子": "小孩", "小孩": "孩子", "老师": "教师", "照顾": "照看", "午餐": "午饭", "得了": "获得了", "有资格": "有权", "赢了": "打败了", "关门": "停止营业", "更换": "替换", "坏了": "损坏了", "响": "发出声音", "修": "修理", "花": "花费", "产": "出产", "吸引": "引来", "容易": "爱", "蜇人": "叮人", "至少": "起码", "需要": "须要", "放在": "养在", "疼": "痛", "报销": "报账", "应该": "应当", "允许生火": "可以生火", "外国": "国外", "通过": "及格", "每天": "每日", "为什么": "为何", "几岁": "多大年龄", "大概": "大约", "没有人": "无人", "死了": "死掉了", "要上": "得上"},
        "abbreviation": {"幼儿园": "幼园", "驾照": "驾本", "公斤": "kg", "公里": "km", "分钟": "分", "零下": "-", "垃圾桶": "桶", "山地车": "山地", "周一": "星期一", "周三": "星期三", "周六": "星期六", "三月": "3月", "四月": "4月", "六月": "6月", "八月": "8月", "十月": "10月", "摩托车": "摩托", "投票站": "票站", "升": "L", "元": "块", "自民党": "自民", "度": "℃", "孔雀鱼": "孔雀", "老师": "师"},
        "switch": {"驾照": "driving license", "帐篷": "tent", "睡袋": "sleeping bag", "蜜蜂": "bees", "蜂蜜": "honey", "孩子": "child", "幼儿园": "kindergarten", "老师": "teacher", "午餐": "lunch", "选举": "election", "投票": "vote", "链条": "chain", "刹车": "brake", "轮胎": "tire", "花": "flower", "水": "water", "鱼缸": "fish tank", "牙": "tooth", "医保": "insurance", "油漆": "paint", "家庭": "family", "外国人": "foreigner", "卡车": "truck", "金鱼": "goldfish", "湖": "lake", "蚊子": "mosquito", "资格": "right"},
        "contraction": {"为什么": "为啥", "怎么": "咋", "什么": "啥", "应该": "应", "可以": "可", "没有": "没", "需要": "要", "以后": "后", "的时候": "时", "能在": "可在", "要不要": "要否", "多少": "几", "哪个": "哪", "几位": "几个", "能吸引": "可吸引"},
        "attribute": {"考": "换", "补考": "退学", "超速": "停车", "外国": "过期", "开": "买", "扔进": "来自", "产生": "回收", "卖": "省", "防": "养", "够暖和": "最便宜", "生火": "游泳", "多重": "多贵", "上幼儿园": "坐飞机", "照顾": "打扫", "晚": "早", "午餐": "早餐", "得了": "丢了", "投票": "参选", "赢了": "联合", "关门": "开门", "更换": "清洗", "上一次油": "换一次", "响": "松", "修": "租", "蜂蜜": "蜂蜡", "吸引": "赶走", "蜇人": "逃走", "至少": "最多", "放在": "买自", "死了": "长大了", "疼": "肿", "拔": "补", "洗牙": "镶牙", "下雨": "下雪", "湖边": "山上", "孩子": "老人"},
        "unit": {"公里": "英里", "公斤": "磅", "度": "米", "分钟": "小时", "元": "欧元", "天": "周", "升": "毫升", "岁": "月"},
        "negation": {"能在": "不能在", "允许": "不允许", "可以上": "不可以上", "有资格": "没有资格", "能放": "不能放", "能报销": "不能报销", "为什么会": "为什么不会", "能吸引": "不能吸引", "没通过": "通过", "赢了": "没赢"},
    },
    before=("请问各位，", "大家好！", "冒昧问一下，", "老师您好，", "想请教一下，", "麻烦问一句，", "有人知道吗？"),
    after=("谢谢！", "非常感谢", "求助，急！", "拜托各位了", "先谢过了。", "希望有人回答。"),
    typo=typo_zh,
    chinese=True,
    symmetric=frozenset(["fish"]),
)  # fmt: skip
